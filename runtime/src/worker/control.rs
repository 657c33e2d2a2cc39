//! Requests from outside, as files in the control directory.

use crate::contract::env::{CONTROL_SAVE, CONTROL_STOP};
use crate::train::step::{Observer, Requests};
use std::path::{Path, PathBuf};

/// Looks for files named `stop` and `save`.
pub(super) struct Control {
    paths: Option<(PathBuf, PathBuf)>,
}

impl Control {
    /// In `dir`; nowhere if there is none.
    pub(super) fn new(dir: Option<&Path>) -> Self {
        Control {
            paths: dir.map(|dir| (dir.join(CONTROL_STOP), dir.join(CONTROL_SAVE))),
        }
    }
}

impl Observer for Control {
    fn requests(&mut self) -> Requests {
        match &self.paths {
            Some((stop, save)) => Requests {
                stop: stop.exists(),
                save: save.exists(),
            },
            None => Requests::default(),
        }
    }
}
