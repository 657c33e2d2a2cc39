//! `haul schema`.

use super::{Global, exit::Exit};

#[derive(Debug, clap::Args)]
pub struct Command {}

impl Command {
    pub(super) fn run(self, _global: &Global) -> anyhow::Result<Exit> {
        crate::ui::print(&crate::recipe::schema::text())?;
        Ok(Exit::Done)
    }
}
