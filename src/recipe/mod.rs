//! What the user wrote, read and checked; every value keeps its place.

pub mod diagnostic;
