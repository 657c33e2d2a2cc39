//! The protocol between supervisor and rank shims: messages, frames and authentication. Pure.
//!
//! hello → challenge → answer → welcome; then `up` and `down` messages until one side leaves. One JSON object a
//! frame; every message carries its version, unknown fields are ignored, an unknown message is [`Up::Unknown`].

pub mod auth;
pub mod frame;
pub mod message;

pub use auth::{Nonce, Secret};
pub use frame::{Decoder, FrameError, encode};
pub use message::{Answer, Bind, Challenge, Down, Ended, Hello, Up, Welcome};

/// Version of the protocol; a peer of another major version is refused in words.
pub const PROTOCOL: u32 = 1;
