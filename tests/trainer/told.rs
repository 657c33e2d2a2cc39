//! How a command ended and what it said.

use serde_json::Value;
use std::process::Output;

/// How a command ended and what it said.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Told {
    pub(crate) fn of(output: Output) -> Told {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Told {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &Told {
        let found = self.out.contains(words) || self.err.contains(words);
        assert!(found, "no `{words}` in {self:#?}");
        self
    }

    /// The one JSON document on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}
