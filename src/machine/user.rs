//! The user's config: which machine, which root, whose account, who is told.

use crate::recipe::diagnostic::{Diagnostic, Sources};
use crate::recipe::notify::{self, Notify};
use crate::recipe::section::{Given, Notes, Section};
use crate::recipe::source;
use crate::recipe::yaml::Origin;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct User {
    /// Name or file of a machine profile.
    pub machine: Option<Given<String>>,
    pub root: Option<Given<String>>,
    /// That jobs are charged to.
    pub account: Option<Given<String>>,
    /// Of runs whose recipe says nothing of it.
    pub notify: Option<Notify>,
}

/// Reads `path`, if there is such a file.
pub fn load(path: Option<&Path>, sources: &mut Sources, faults: &mut Vec<Diagnostic>) -> User {
    let Some(path) = path.filter(|p| p.exists()) else {
        return User::default();
    };
    let Some((tree, _)) = source::tree(path, "user config", Origin::User, None, sources, faults)
    else {
        return User::default();
    };
    let mut notes = Notes::default();
    let mut root = Section::root(Some(&tree), &mut notes);
    let s = &mut root;
    let user = User {
        machine: s.text("machine", "Name or file of a machine profile.", None),
        root: s.text("root", "Run root.", None),
        account: s.text("account", "Account that jobs are charged to.", None),
        notify: s.section("notify", "Who is told how a run ends.", notify::read),
    };
    root.finish();
    faults.append(&mut notes.faults);
    user
}
