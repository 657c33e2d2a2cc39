//! Arithmetic paths: which there are, which this CPU has, and how a kernel is run on one.
#![allow(unsafe_code)]

use super::simd::Simd;
#[cfg(test)]
use super::simd::portable::Wide;
use super::simd::portable::{Plain, Portable};
#[cfg(target_arch = "x86_64")]
use super::simd::{avx2::Avx2, avx512::Avx512};

/// Rows of the tallest tile of all paths (AVX-512).
pub(super) const ROWS_MOST: usize = 14;

/// An arithmetic path. Results are equal to the bit only on the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// AVX-512F.
    Avx512,
    /// AVX2 and FMA.
    Avx2,
    /// Plain Rust, multiply then add.
    Portable,
    /// Plain Rust in the measures of [`Isa::Avx512`].
    #[cfg(test)]
    Wide,
}

impl Isa {
    /// From the fastest to the slowest.
    pub const ALL: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// Name in checkpoints and reports.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
            #[cfg(test)]
            Isa::Wide => "wide",
        }
    }

    /// Whether this CPU has it.
    pub fn available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => std::arch::is_x86_feature_detected!("avx512f") && Isa::Avx2.available(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx512 | Isa::Avx2 => false,
            Isa::Portable => true,
            #[cfg(test)]
            Isa::Wide => true,
        }
    }

    /// What tests run on: all available paths and the stand-in for AVX-512.
    #[cfg(test)]
    pub(super) fn tested() -> Vec<Isa> {
        let paths = Self::ALL.into_iter().filter(|isa| isa.available());
        paths.chain([Isa::Wide]).collect()
    }

    /// The fastest that this CPU has.
    pub fn detect() -> Isa {
        Self::ALL
            .into_iter()
            .find(|isa| isa.available())
            .unwrap_or(Isa::Portable)
    }

    /// Rows and columns of a tile of the matrix kernel.
    pub(super) fn tile(self) -> (usize, usize) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => (Avx512::MR, Avx512::NR),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => (Avx2::MR, Avx2::NR),
            #[cfg(test)]
            Isa::Wide => (Wide::MR, Wide::NR),
            _ => (Portable::MR, Portable::NR),
        }
    }

    /// Runs `body` with the instruction set enabled.
    /// # Safety
    /// The path is available, and what `body` requires holds.
    pub(super) unsafe fn run<B: Body>(self, body: B) -> B::Out {
        // SAFETY: as required of the caller.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512(body),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2(body),
                #[cfg(test)]
                Isa::Wide => body.run::<Wide>(Plain),
                _ => body.run::<Portable>(Plain),
            }
        }
    }
}

/// Work that is compiled once for each path.
pub(super) trait Body {
    type Out;
    /// Implementations are `#[inline(always)]`, and so is all they call with `s`.
    /// # Safety
    /// Stated by each implementation.
    unsafe fn run<S: Simd>(self, s: S) -> Self::Out;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512<B: Body>(body: B) -> B::Out {
    // SAFETY: as required of the caller.
    unsafe { body.run(Avx512::new()) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<B: Body>(body: B) -> B::Out {
    // SAFETY: as required of the caller.
    unsafe { body.run(Avx2::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detected_path_is_the_first_available() {
        let first = Isa::ALL.into_iter().find(|i| i.available());
        assert_eq!(Some(Isa::detect()), first);
        assert!(Isa::Portable.available());
        assert!(Isa::tested().iter().all(|isa| isa.tile().0 <= ROWS_MOST));
    }
}
