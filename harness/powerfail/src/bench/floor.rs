//! What verification can't be faster than: a bare loop device over the same images; mount, read everything, unmount,
//! `e2fsck -fn`, as many at a time.
//!
//! It is a program of its own (`powerfail floor`, not for people), since it makes a mount namespace. It gets images by
//! paths below its parent's `/proc/…/fd`, and prints the seconds that all of them took.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use powerfail_agent::attach::loop_device::{LoopDevice, Setup};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};

/// The program: an empty folder, the number at a time, and images.
pub fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let folder = words.next().map(PathBuf::from).unwrap_or_default();
    let jobs = words.next().and_then(|jobs| jobs.to_str()?.parse().ok()).unwrap_or(1);
    let images: Vec<PathBuf> = words.map(PathBuf::from).collect();
    match all(&folder, jobs, &images) {
        Ok(seconds) => {
            println!("{seconds}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("powerfail floor: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn all(folder: &Path, jobs: usize, images: &[PathBuf]) -> anyhow::Result<f64> {
    let files =
        images.iter().map(|path| File::options().read(true).write(true).open(path)).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: this process has one thread, and nothing else of it depends on the namespace that it leaves.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .context("needs a mount namespace")?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("none", folder, "tmpfs", MountFlags::empty(), None)?;
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs)
            .map(|worker| {
                let (next, files) = (&next, &files);
                let mount_point = folder.join(worker.to_string());
                scope.spawn(move || -> anyhow::Result<()> {
                    fs::create_dir(&mount_point)?;
                    while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                        one(file, &mount_point)?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(started.elapsed().as_secs_f64())
}

fn one(image: &File, mount_point: &Path) -> anyhow::Result<()> {
    let device = LoopDevice::over(image, &Setup { size: None, read_only: false, direct_io: false })?;
    mount(device.path(), mount_point, "ext4", MountFlags::empty(), None)?;
    read_all(mount_point, &mut vec![0; 1 << 20])?;
    // Between fork and exec another worker's e2fsck holds what this one had open; that passes by itself.
    while let Err(error) = unmount(mount_point, UnmountFlags::empty()) {
        if error != rustix::io::Errno::BUSY {
            return Err(error.into());
        }
        std::thread::yield_now();
    }
    let fsck =
        Command::new("e2fsck").arg("-fn").arg(device.path()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if !fsck.success() {
        bail!("an image of a safe mode is not clean");
    }
    device.close()?;
    Ok(())
}

fn read_all(folder: &Path, buffer: &mut [u8]) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            read_all(&entry.path(), buffer)?;
        } else {
            let mut file = File::open(entry.path())?;
            while file.read(buffer)? > 0 {}
        }
    }
    Ok(())
}
