//! The protocol between supervisor and rank shims: messages and frames. Pure.
