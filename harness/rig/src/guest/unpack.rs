//! Kernel modules as they are packed: plain, xz, zstd or gzip. They are unpacked here, for a guest without hardware
//! virtualisation is many times slower at it.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// The endings of module files.
pub(super) const ENDINGS: &[&str] = &["ko", "ko.xz", "ko.zst", "ko.gz"];

/// The bytes of a module file, unpacked by what its ending says.
///
/// # Errors
/// It can't be read, or is not what it says.
pub(super) fn read_module(path: &Path) -> io::Result<Vec<u8>> {
    let packed = fs::read(path)?;
    let mut bytes = Vec::new();
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => drop(liblzma::read::XzDecoder::new_multi_decoder(&packed[..]).read_to_end(&mut bytes)?),
        Some("zst") => {
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(&packed[..]).map_err(io::Error::other)?;
            decoder.read_to_end(&mut bytes)?;
        }
        Some("gz") => drop(flate2::read::MultiGzDecoder::new(&packed[..]).read_to_end(&mut bytes)?),
        _ => return Ok(packed),
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn each_packing_is_undone_and_a_broken_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let plain: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let path = |ending: &str| folder.path().join(format!("module.{ending}"));
        fs::write(path("ko"), &plain).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&plain).unwrap();
        fs::write(path("ko.xz"), xz.finish().unwrap()).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&plain).unwrap();
        fs::write(path("ko.gz"), gz.finish().unwrap()).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
        fs::write(path("ko.zst"), zstd).unwrap();
        for ending in ENDINGS {
            assert!(read_module(&path(ending)).unwrap() == plain, "{ending}");
        }
        for ending in &ENDINGS[1..] {
            let whole = fs::read(path(ending)).unwrap();
            fs::write(path(ending), &whole[..whole.len() / 2]).unwrap();
            assert!(read_module(&path(ending)).is_err(), "half of {ending}");
        }
    }
}
