//! The fast f32 device for CPU cores.
