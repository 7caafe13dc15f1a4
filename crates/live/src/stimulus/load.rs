//! The busy load: a thread on each measured CPU compresses a region of random bytes with zlib. The region is larger
//! than the last-level cache where memory permits.

use std::sync::Arc;

use flate2::{Compress, Compression, FlushCompress, Status};

use super::error::WorkerError;
use super::facts::{Facts, facts};
use super::settings::LoadSettings;
use super::system::random_from_clock;
use super::worker_pool::{Worker, WorkerPool};
use crate::host::{AvailableMemory, Root, available_memory};

const MIB: u64 = 1024 * 1024;
/// Bytes that one operation compresses. Few, so that a thread stops soon after a stop request.
const CHUNK_BYTES: usize = 256 * 1024;
/// Size of the output buffer. Compressed random bytes are larger than the input: zlib adds 5 bytes for each stored
/// block of 16 KiB, and a few more.
const OUTPUT_BYTES: usize = CHUNK_BYTES + 4096;
const ZLIB_LEVEL: u32 = 6;
const REGION_BYTES_MIN: u64 = 32 * MIB;
const REGION_BYTES_UNKNOWN_CACHE: u64 = 64 * MIB;

pub(super) fn start(settings: &LoadSettings, pool: &mut WorkerPool) -> Result<Facts, WorkerError> {
    let memory = available_memory(&Root::default());
    let bytes = region_bytes(settings, &memory)?;
    let region = Arc::new(random_region(bytes)?);
    let threads = settings.cpus.len();
    for (index, &cpu) in settings.cpus.iter().enumerate() {
        let region = Arc::clone(&region);
        let chunks = region.len() / CHUNK_BYTES;
        pool.spawn("load", Some(cpu), move |worker| {
            compress_loop(worker, &region, index * chunks / threads)
        })?;
    }
    let cache = settings.last_level_cache_bytes;
    Ok(facts! {
        "load": "busy",
        "method": "zlib",
        "zlib_level": ZLIB_LEVEL,
        "region_bytes": region.len() as u64,
        "chunk_bytes": CHUNK_BYTES as u64,
        "last_level_cache_bytes": cache,
        "region_exceeds_cache": cache.map(|cache| region.len() as u64 > cache),
        "memory_available_bytes": memory.bytes,
        "memory_limit_bytes": memory.limit.as_ref().map(|limit| limit.limit_bytes),
        "memory_limit_file": memory.limit.as_ref().map(|limit| &limit.file),
    })
}

/// The size of the region: the requested one, or a default that depends on the last-level cache; rounded down to
/// whole chunks. Fails if it exceeds the available memory.
fn region_bytes(settings: &LoadSettings, memory: &AvailableMemory) -> Result<u64, WorkerError> {
    let available = memory.bytes;
    let requested = match (settings.region_bytes, settings.last_level_cache_bytes) {
        (Some(bytes), _) => bytes,
        (None, Some(cache)) => {
            let limit = available.map_or(u64::MAX, |available| available / 8);
            cache.saturating_mul(2).max(REGION_BYTES_MIN).min(limit)
        }
        (None, None) => REGION_BYTES_UNKNOWN_CACHE.min(available.unwrap_or(u64::MAX) / 8),
    };
    let chunk = CHUNK_BYTES as u64;
    let bytes = requested.max(chunk) / chunk * chunk;
    let checked = memory.check("the busy load's region", bytes);
    checked.map_err(|shortage| WorkerError::unavailable(shortage.reason, shortage.remedy))?;
    Ok(bytes)
}

fn random_region(bytes: u64) -> Result<Vec<u8>, WorkerError> {
    let no_memory = || {
        WorkerError::unavailable(
            format!("no memory for a region of {bytes} bytes"),
            "free some memory",
        )
    };
    let length = usize::try_from(bytes).map_err(|_| no_memory())?;
    let mut region = Vec::new();
    region.try_reserve_exact(length).map_err(|_| no_memory())?;
    region.resize(length, 0);
    random_from_clock().fill(&mut region);
    Ok(region)
}

/// Compresses chunk after chunk until stopped, and continues at the region's start after its end. The threads start at
/// different chunks.
fn compress_loop(worker: &Worker, region: &[u8], first_chunk: usize) -> Result<(), WorkerError> {
    let mut compressor = Compress::new(Compression::new(ZLIB_LEVEL), true);
    let mut output = vec![0; OUTPUT_BYTES];
    let mut is_ready = false;
    for chunk in region.chunks_exact(CHUNK_BYTES).cycle().skip(first_chunk) {
        compressor.reset();
        match compressor.compress(chunk, &mut output, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => worker.count(1, chunk.len() as u64),
            other => return Err(WorkerError::failed(format!("zlib: {other:?}"))),
        }
        if !is_ready {
            worker.report_ready(Facts::new());
            is_ready = true;
        }
        if worker.is_stopped() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(region: Option<u64>, cache: Option<u64>, available: Option<u64>) -> Option<u64> {
        let settings =
            LoadSettings { cpus: vec![0], region_bytes: region, last_level_cache_bytes: cache };
        let memory = AvailableMemory { bytes: available, limit: None };
        region_bytes(&settings, &memory).ok()
    }

    #[test]
    fn the_region_follows_cache_memory_and_wish() {
        let gib = 1024 * MIB;
        assert_eq!(size(None, Some(40 * MIB), Some(16 * gib)), Some(80 * MIB));
        assert_eq!(size(None, Some(MIB), Some(16 * gib)), Some(32 * MIB));
        assert_eq!(size(None, Some(512 * MIB), Some(4 * gib)), Some(512 * MIB));
        assert_eq!(size(None, None, Some(16 * gib)), Some(64 * MIB));
        assert_eq!(size(None, None, None), Some(64 * MIB));
        assert_eq!(size(Some(MIB + 1), Some(40 * MIB), None), Some(MIB));
        assert_eq!(size(Some(0), None, None), Some(CHUNK_BYTES as u64));
        assert_eq!(size(Some(3 * gib), None, Some(4 * gib)), None);
    }

    #[test]
    fn a_random_chunk_fits_the_output() {
        let mut chunk = vec![0; CHUNK_BYTES];
        random_from_clock().fill(&mut chunk);
        let mut compressor = Compress::new(Compression::new(ZLIB_LEVEL), true);
        let mut output = vec![0; OUTPUT_BYTES];
        let status = compressor.compress(&chunk, &mut output, FlushCompress::Finish).unwrap();
        assert_eq!(status, Status::StreamEnd);
        assert!(compressor.total_out() as usize > CHUNK_BYTES, "random data must not shrink");
    }
}
