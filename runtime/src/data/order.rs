//! The order of samples: a keyed permutation with O(1) access, so no index is built, stored or shared.

/// Rounds of the network; four make a strong permutation of a random function, two more cost nothing here.
const ROUNDS: usize = 6;

/// A permutation of `0..len`: a balanced Feistel network over the next even power of two, walked until inside.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    len: u64,
    /// Bits of each half.
    half: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of `len` elements for an epoch of a run.
    pub fn new(len: u64, seed: u64, epoch: u64) -> Permutation {
        let mut hasher = blake3::Hasher::new_derive_key("haul sample order 1");
        for word in [len, seed, epoch] {
            hasher.update(&word.to_le_bytes());
        }
        let mut bytes = [0u8; 8 * ROUNDS];
        hasher.finalize_xof().fill(&mut bytes);
        let mut keys = [0; ROUNDS];
        for (key, chunk) in keys.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *key = u64::from_le_bytes(*chunk);
        }
        let bits = 64 - len.saturating_sub(1).leading_zeros();
        Permutation {
            len,
            half: bits.div_ceil(2),
            keys,
        }
    }

    /// Element at place `i`, which must be below the length.
    pub fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.len);
        let mut x = i;
        // Each step is a bijection of a set less than four times as large: the walk ends inside, after four steps in the mean at most.
        loop {
            x = self.network(x);
            if x < self.len || self.half == 0 {
                return x;
            }
        }
    }

    fn network(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (x >> self.half, x & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half | right
    }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Offset inside a global batch of the first of `micro` sequences that replica `replica` of `data` takes as micro-batch `index`.
///
/// Micro-batch `index` of all replicas stands together, so the union over replicas and indices is the whole batch, once each.
pub fn offset_in_batch(micro: usize, data: usize, replica: usize, index: usize) -> u64 {
    ((index * data + replica) * micro) as u64
}
