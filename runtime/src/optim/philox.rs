//! Philox4x32-10, a counter-based random number generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The four words at `counter` under `key`.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = MULTIPLIERS[0] * u64::from(counter[0]);
        let b = MULTIPLIERS[1] * u64::from(counter[2]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// A stream of random numbers by index: independent streams for each (seed, name).
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    key: [u32; 2],
}

impl Stream {
    /// The stream called `name` under `seed`.
    pub fn new(seed: u64, name: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(name.as_bytes());
        let hash = hasher.finalize();
        let word = |i: usize| {
            let b = hash.as_bytes();
            u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]])
        };
        Stream {
            key: [word(0), word(4)],
        }
    }

    /// Two uniform numbers in (0, 1) at index `i`, of 53 bits each.
    pub fn uniform_pair(&self, i: u64) -> [f64; 2] {
        let w = philox([i as u32, (i >> 32) as u32, 0, 0], self.key);
        let real = |hi: u32, lo: u32| {
            let bits = (u64::from(hi) << 32 | u64::from(lo)) >> 11;
            (bits as f64 + 0.5) / (1u64 << 53) as f64
        };
        [real(w[0], w[1]), real(w[2], w[3])]
    }

    /// Two standard normal numbers at index `i` (Box and Muller).
    pub fn normal_pair(&self, i: u64) -> [f64; 2] {
        let [u, v] = self.uniform_pair(i);
        let radius = libm::sqrt(-2.0 * libm::log(u));
        let (sin, cos) = libm::sincos(std::f64::consts::TAU * v);
        [radius * cos, radius * sin]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // Vectors of Random123, kat_vectors: philox4x32 10.
        assert_eq!(
            philox([0; 4], [0; 2]),
            [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]
        );
        assert_eq!(
            philox(
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0]
            ),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn normals_have_the_moments_of_a_normal_and_streams_differ() {
        let stream = Stream::new(7, "wte.weight");
        let n = 100_000;
        let all: Vec<f64> = (0..n / 2).flat_map(|i| stream.normal_pair(i)).collect();
        let moment = |p: i32| all.iter().map(|x| x.powi(p)).sum::<f64>() / n as f64;
        assert!(moment(1).abs() < 0.01 && (moment(2) - 1.0).abs() < 0.02);
        assert!(moment(3).abs() < 0.05 && (moment(4) - 3.0).abs() < 0.1);
        for other in [Stream::new(8, "wte.weight"), Stream::new(7, "wpe.weight")] {
            assert_ne!(other.uniform_pair(0), stream.uniform_pair(0));
        }
    }
}
