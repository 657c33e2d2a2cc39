//! The model as modules that emit forward and backward operations.
