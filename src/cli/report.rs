//! `haul report`.

use super::{Global, exit::Exit};
use crate::actions::report::{self, Form};
use crate::store::RunDir;
use crate::ui::{self, style::Style};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Run: `last`, its id, or the start of it
    #[arg(value_name = "RUN", default_value = "last", conflicts_with = "dir")]
    run: String,
    /// A run directory anywhere, such as a copy
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one self-contained HTML page
    #[arg(long, conflicts_with = "md")]
    html: bool,
    /// Print Markdown
    #[arg(long)]
    md: bool,
    /// Write to a file instead
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let run = match &self.dir {
            Some(dir) => RunDir::new(dir),
            None => super::status::run(global, &self.run)?,
        };
        anyhow::ensure!(
            !(global.json && (self.html || self.md)),
            "--json, --html and --md exclude each other"
        );
        let form = match (global.json, self.html, self.md) {
            (true, ..) => Form::Json,
            (_, true, _) => Form::Html,
            (_, _, true) => Form::Markdown,
            _ => Form::Text,
        };
        if let Some(path) = &self.output {
            report::save(path, &report::render(&run, form, Style::PLAIN)?)?;
            ui::say(&format!("report: {}", path.display()));
        } else if form == Form::Text {
            let shown = report::show(&run, Style::stdout())?;
            ui::print(&shown.text)?;
            match shown.kept {
                None => {}
                Some(Ok(path)) => ui::say(&format!("report: {}", path.display())),
                Some(Err(error)) => ui::say(&format!(
                    "note: no report was kept in the run directory: {error:#}; -o FILE --html writes one elsewhere"
                )),
            }
        } else {
            ui::print(&report::render(&run, form, Style::PLAIN)?)?;
        }
        Ok(Exit::Done)
    }
}
