//! Frames: a length of four bytes, big-endian, then that many bytes of JSON. Bounded on both sides.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest frame after authentication.
pub const LIMIT: usize = 64 * 1024;
/// Largest frame of a peer that has not proved itself.
pub const GREETING_LIMIT: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {len} bytes is over the limit of {limit}")]
    Oversize { len: usize, limit: usize },
    #[error("a frame is not a message: {0}")]
    Json(String),
}

/// The frame of a message, or [`FrameError::Oversize`] when it does not fit in [`LIMIT`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).map_err(|e| FrameError::Json(e.to_string()))?;
    let len = frame.len() - 4;
    let prefix = u32::try_from(len)
        .ok()
        .filter(|_| len <= LIMIT)
        .ok_or(FrameError::Oversize { len, limit: LIMIT })?;
    frame[..4].copy_from_slice(&prefix.to_be_bytes());
    Ok(frame)
}

/// Cuts a stream of bytes into messages. Holds at most one frame and what was pushed last.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    limit: usize,
}

impl Decoder {
    /// A decoder that refuses frames over `limit` bytes.
    pub fn new(limit: usize) -> Decoder {
        Decoder {
            buffer: Vec::new(),
            limit,
        }
    }

    /// Allows frames up to `limit` from now on: the peer has proved itself.
    pub fn raise(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether a frame has begun and its end has not come.
    pub fn is_torn(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next whole message; absent when more bytes are needed. After an error the stream is lost.
    pub fn message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*prefix) as usize;
        if len > self.limit {
            return Err(FrameError::Oversize {
                len,
                limit: self.limit,
            });
        }
        let Some(body) = self.buffer.get(4..4 + len) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body).map_err(|e| FrameError::Json(e.to_string()))?;
        self.buffer.drain(..4 + len);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn messages_survive_any_cut_of_the_stream(
            messages in prop::collection::vec(".{0,200}", 0..12),
            cuts in prop::collection::vec(1usize..50, 1..40),
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
            let mut decoder = Decoder::new(LIMIT);
            let mut seen: Vec<String> = Vec::new();
            let mut rest = stream.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                decoder.push(now);
                rest = later;
                while let Some(message) = decoder.message().unwrap() { seen.push(message); }
            }
            prop_assert_eq!(seen, messages);
            prop_assert!(!decoder.is_torn());
        }

        #[test]
        fn a_torn_frame_waits_and_is_never_a_message(message in ".{0,100}", keep in 0usize..100) {
            let frame = encode(&message).unwrap();
            let keep = keep.min(frame.len() - 1);
            let mut decoder = Decoder::new(LIMIT);
            decoder.push(&frame[..keep]);
            prop_assert_eq!(decoder.message::<String>(), Ok(None));
            prop_assert_eq!(decoder.is_torn(), keep > 0);
        }

        #[test]
        fn garbage_is_refused_without_a_panic_and_within_bounds(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..40),
        ) {
            let mut decoder = Decoder::new(GREETING_LIMIT);
            for chunk in &chunks {
                decoder.push(chunk);
                prop_assert!(decoder.buffer.len() <= 4 + GREETING_LIMIT + 300);
                loop {
                    match decoder.message::<super::super::Hello>() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => return Ok(()),
                    }
                }
            }
        }
    }

    #[test]
    fn oversize_is_an_error_on_both_sides() {
        assert!(matches!(
            encode(&"x".repeat(LIMIT)),
            Err(FrameError::Oversize { .. })
        ));
        let mut decoder = Decoder::new(GREETING_LIMIT);
        decoder.push(&(GREETING_LIMIT as u32 + 1).to_be_bytes());
        assert_eq!(
            decoder.message::<String>(),
            Err(FrameError::Oversize {
                len: GREETING_LIMIT + 1,
                limit: GREETING_LIMIT
            })
        );
        let mut decoder = Decoder::new(LIMIT);
        decoder.push(b"GET / HTTP/1.1\r\n\r\n");
        assert!(decoder.message::<String>().is_err());
    }
}
