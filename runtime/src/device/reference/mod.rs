//! The naive f64 device: the twin of every operation.
