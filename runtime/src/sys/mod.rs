//! Raw system calls and raw memory: the lowest floor, one door to the kernel. Unsafe code lives here, in `comm` and in `device`.

pub mod available;
pub mod fd;
pub mod futex;
pub mod heap;
pub mod memfd;
pub mod publish;
pub mod region;
pub mod spawn;
