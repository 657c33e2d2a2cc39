//! What a rank will do, as data: parameters, programs, schedule, memory, FLOPs. Pure: no I/O, no unsafe, no clock.

pub mod program;
