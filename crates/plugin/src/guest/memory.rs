//! The guest's memory, as the parts of this module that only read memory see it. Their tests use a memory of their own,
//! without QEMU.

use crate::qemu::Qemu;

/// Memory at virtual addresses of the running vCPU.
pub(crate) trait GuestMemory {
    /// Copies the memory at `address` to `bytes`. Returns whether the whole range is mapped.
    fn copy(&mut self, address: u64, bytes: &mut [u8]) -> bool;

    /// The bytes at `address`. `None` if a part of them is not mapped.
    fn bytes_at<const BYTES: usize>(&mut self, address: u64) -> Option<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.copy(address, &mut bytes).then_some(bytes)
    }

    /// The 64-bit number at `address`. `None` if it is not mapped.
    fn word_at(&mut self, address: u64) -> Option<u64> {
        self.bytes_at(address).map(u64::from_le_bytes)
    }

    /// The text at `address`, up to its zero byte. `None` if a byte is not mapped. It is read byte by byte, because the next
    /// page may not be mapped.
    fn text_at<const BYTES_MAX: usize>(&mut self, address: u64) -> Option<[u8; BYTES_MAX]> {
        let mut text = [0; BYTES_MAX];
        for (address, byte) in (address..).zip(&mut text) {
            let [read] = self.bytes_at(address)?;
            if read == 0 {
                break;
            }
            *byte = read;
        }
        Some(text)
    }

    /// The 32-bit number at `address`. `None` if it is not mapped.
    fn half_word_at(&mut self, address: u64) -> Option<u32> {
        self.bytes_at(address).map(u32::from_le_bytes)
    }
}

impl GuestMemory for Qemu {
    fn copy(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.read(address, bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A memory with these bytes, by address. All other addresses are not mapped.
    #[derive(Default)]
    pub(crate) struct TestMemory(BTreeMap<u64, u8>);

    impl TestMemory {
        pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) {
            self.0.extend((address..).zip(bytes.iter().copied()));
        }
    }

    impl GuestMemory for TestMemory {
        fn copy(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            (address..).zip(bytes).all(|(address, byte)| match self.0.get(&address) {
                Some(value) => {
                    *byte = *value;
                    true
                }
                None => false,
            })
        }
    }
}
