//! A matrix on one machine and on a cluster: shards of a real Slurm, one of them killed half way and requeued, come to what one
//! run comes to.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;

/// Four cells, of which one takes long enough to be killed in the middle.
const MATRIX: &str = r#"
states = 24
[drive]
size = "64M"
[[cells]]
modes = ["barrier", "nobarrier-w0", "nobarrier-w1", "data-writeback"]
workloads = [{ name = "mason", opts = "steps=120,seconds=60,files=120,workers=2,hog_mib=0,hog_every=0" }]
"#;

fn matrix(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("matrix.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Of each cell: states judged, and the verdict's name.
fn cells(summary: &serde_json::Value) -> BTreeMap<String, (u64, String)> {
    let cell = |cell: &serde_json::Value| {
        let judged = cell["held"].as_u64().unwrap() + cell["violated"].as_u64().unwrap();
        (cell["mode"].as_str().unwrap().to_owned(), (judged, cell["verdict"].as_str().unwrap().to_owned()))
    };
    summary["cells"].as_array().unwrap().iter().map(cell).collect()
}

#[test]
fn a_dry_run_prints_the_cells_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = matrix(folder.path(), MATRIX);
    let out = folder.path().join("out");
    let ran = run(program().arg("matrix").arg(&file).arg("--dry-run").arg("--out").arg(&out)).expect(0);
    assert!(ran.stdout.contains("ext4-nobarrier-w0") && ran.stdout.contains("4 cells, about"), "{}", ran.stdout);
    assert!(!out.exists());
    for shard in ["4/4", "x", "auto/4"] {
        refuse(program().arg("matrix").arg(&file).args(["--dry-run", "--shard", shard]), "--shard");
    }
    fs::write(&file, MATRIX.replace("states = 24", "stats = 24")).unwrap();
    refuse(program().arg("matrix").arg(&file).arg("--dry-run"), "line 2");
}

#[test]
fn a_wrong_expectation_is_exit_code_one_and_the_headline_says_which_cell() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = MATRIX.replace(
        r#"modes = ["barrier", "nobarrier-w0", "nobarrier-w1", "data-writeback"]"#,
        r#"modes = ["nobarrier-w1"]
expect = "safe""#,
    );
    let file = matrix(folder.path(), &text);
    let (out, junit) = (folder.path().join("out"), folder.path().join("junit.xml"));
    let mut command = program();
    command.arg("matrix").arg(&file).arg("--out").arg(&out).arg("--junit").arg(&junit).args(["--keep", "violated"]);
    run(&mut command).expect(1);
    let page = fs::read_to_string(out.join("page.html")).unwrap();
    let headline = page.split("<h1").nth(1).and_then(|rest| rest.split("</h1>").next()).unwrap();
    assert!(headline.contains("nobarrier-w1"), "{headline}");
    assert!(fs::read_to_string(&junit).unwrap().contains("<failure"));
    assert!(out.join("ext4-nobarrier-w1/recording").exists(), "there is something to replay");
}

#[test]
fn shards_of_a_real_slurm_come_to_what_one_run_comes_to() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(slurm) = Slurm::start(folder.path()) else { return };
    let file = matrix(folder.path(), MATRIX);
    let whole = folder.path().join("whole");
    let one = run(program().arg("matrix").arg(&file).arg("--out").arg(&whole).arg("--json")).expect(0).json();

    let shards = folder.path().join("shards");
    fs::create_dir(&shards).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cluster/slurm.sh");
    let submitted = slurm.say(
        Command::new("sbatch")
            .args(["--parsable", "--array=0-3", "--cpus-per-task=1", "--output", "log-%a"])
            .arg(script.canonicalize().unwrap())
            .arg(&file)
            .args(["--cells", "1", "--jobs", "1"])
            .env("OUT", &shards)
            .env("POWERFAIL", env!("CARGO_BIN_EXE_powerfail"))
            .current_dir(folder.path()),
    );
    let job = submitted.trim().to_owned();
    // The task of the third shard is killed when it has judged something, and is requeued.
    let ledger = shards.join("2/ledger.jsonl");
    slurm.until("a verdict of shard 2", || {
        fs::read_to_string(&ledger).is_ok_and(|text| text.matches("\"line\":\"state\"").count() >= 2)
    });
    slurm.say(Command::new("scontrol").args(["requeue", &format!("{job}_2")]));
    slurm.until("the end of all tasks", || {
        slurm.say(Command::new("squeue").args(["--noheader", "--jobs", &job])).trim().is_empty()
    });

    let merged = run(program().arg("report").arg(&shards).arg("--json")).expect(0).json();
    assert_eq!(cells(&merged), cells(&one), "{merged:#}");
    let restarted = fs::read_to_string(folder.path().join("log-2")).unwrap_or_default();
    assert!(restarted.matches("cells, seed").count() >= 2, "it was killed and went on: {restarted}");
    // What a shard lacks is said.
    fs::rename(shards.join("1"), folder.path().join("lost")).unwrap();
    let partial = run(program().arg("report").arg(&shards));
    assert!(
        format!("{}{}", partial.stdout, partial.stderr).contains("missing"),
        "{}{}",
        partial.stdout,
        partial.stderr
    );
}

/// A Slurm of our own, in a folder: munged, slurmctld and slurmd, without systemd.
struct Slurm {
    folder: PathBuf,
    daemons: Vec<Child>,
}

const LIMIT: Duration = Duration::from_secs(240);

impl Slurm {
    fn start(folder: &Path) -> Option<Slurm> {
        let missing = ["munged", "slurmctld", "slurmd", "sbatch"]
            .into_iter()
            .find(|tool| !["/usr/sbin", "/usr/bin"].iter().any(|place| Path::new(place).join(tool).exists()));
        if let Some(tool) = missing {
            println!("SKIPPED: {tool} is not installed; apt-get install slurmctld slurmd slurm-client munge.");
            return None;
        }
        // munged refuses folders that others may write to.
        let home = folder.join("slurm");
        for place in ["", "state", "spool"] {
            fs::create_dir_all(home.join(place)).unwrap();
        }
        fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(home.join("key"), [7; 128]).unwrap();
        fs::set_permissions(home.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        fs::write(home.join("slurm.conf"), configuration(&home, &host)).unwrap();
        let mut slurm = Slurm { folder: home.clone(), daemons: Vec::new() };
        let at = |name: &str, file: &str| format!("--{name}={}", home.join(file).display());
        slurm.spawn(Command::new("munged").arg("--foreground").args([
            at("key-file", "key"),
            at("socket", "socket"),
            at("log-file", "munged.log"),
            at("pid-file", "munged.pid"),
            at("seed-file", "seed"),
        ]));
        slurm.until("munged", || home.join("socket").exists());
        slurm.spawn(Command::new("slurmctld").args(["-D", "-c", "-i", "-f"]).arg(home.join("slurm.conf")));
        slurm.spawn(Command::new("slurmd").args(["-D", "-c", "-f"]).arg(home.join("slurm.conf")));
        slurm.until("an idle node", || {
            let told = slurm.command(&mut Command::new("sinfo")).arg("--noheader").output();
            told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains("idle"))
        });
        Some(slurm)
    }

    fn spawn(&mut self, command: &mut Command) {
        let log = fs::File::create(self.folder.join(format!("daemon-{}", self.daemons.len()))).unwrap();
        let error = log.try_clone().unwrap();
        let child = self.command(command).stdin(Stdio::null()).stdout(log).stderr(error).spawn().unwrap();
        self.daemons.push(child);
    }

    fn command<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("SLURM_CONF", self.folder.join("slurm.conf")).env("PATH", format!("{path}:/usr/sbin:/sbin"))
    }

    /// What a command of Slurm's prints.
    fn say(&self, command: &mut Command) -> String {
        let ran = self.command(command).output().unwrap();
        assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// Looks again until it holds; Slurm has no events to wait for.
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + LIMIT;
        while !holds() {
            assert!(Instant::now() < end, "no {what} within {LIMIT:?}: {}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn logs(&self) -> String {
        let read = |number: usize| fs::read_to_string(self.folder.join(format!("daemon-{number}"))).unwrap_or_default();
        (0..self.daemons.len()).map(read).collect()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn configuration(home: &Path, host: &str) -> String {
    let home = home.display();
    format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nAuthType=auth/munge\nAuthInfo=socket={home}/socket,cred_expire=5\n\
         CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\nSlurmUser=root\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nSlurmdParameters=config_overrides\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nKillWait=2\nReturnToService=2\nMpiDefault=none\n\
         StateSaveLocation={home}/state\nSlurmdSpoolDir={home}/spool\nSlurmctldPidFile={home}/ctld.pid\n\
         SlurmdPidFile={home}/d.pid\nSlurmctldPort=16817\nSlurmdPort=16818\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000\nPartitionName=p Nodes=ALL Default=YES\n"
    )
}
