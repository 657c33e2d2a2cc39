//! What the user wrote, read and checked; every value keeps its place.

pub mod batch;
pub mod chain;
pub mod checkpoint;
pub mod data;
pub mod diagnostic;
pub mod environment;
pub mod job;
pub mod merge;
pub mod model;
pub mod notify;
pub mod parallel;
pub mod program;
pub mod restart;
pub mod scalar;
pub mod schema;
pub mod section;
pub mod source;
pub mod train;
pub mod yaml;

use diagnostic::Diagnostic;
use section::{Given, Kind, Notes, Section};
use yaml::Node;

/// A recipe in types. Where a value has a fault its default stands, or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    pub name: Option<Given<String>>,
    pub model: Option<model::Model>,
    pub parallel: parallel::Parallel,
    pub batch: batch::Batch,
    pub train: train::Train,
    pub data: data::Data,
    pub checkpoint: Option<checkpoint::Checkpoint>,
    pub job: job::Job,
    pub environment: environment::Environment,
    /// `None`: the bundled trainer.
    pub program: Option<program::Program>,
    pub restart: restart::Restart,
    pub chain: Given<chain::Chain>,
    pub limits: chain::Limits,
    /// `None`: nobody, or whom the user's config names.
    pub notify: Option<notify::Notify>,
}

/// Pattern of run names.
pub const NAME: &str = "^[a-z0-9-]{1,40}$";

impl Recipe {
    /// Reads a merged tree and notes all faults; `None` reads the schema.
    pub fn read(tree: Option<&Node>, notes: &mut Notes) -> (Recipe, Kind) {
        let mut root = Section::root(tree, notes);
        let s = &mut root;
        s.later(&["sweep", "after", "hooks", "tune"]);
        let name = name(s);
        s.text(
            "extends",
            "A recipe this one is based on, relative to this file.",
            None,
        );
        let foreign = tree.is_some_and(|t| t.get("program").is_some());
        // A foreign program need not tell its model; the bundled trainer needs all of it.
        let trained = !foreign || tree.is_some_and(|t| t.get("model").is_some());
        let model = model::read(s);
        if !foreign {
            s.missing(
                "model",
                "name a preset, such as `model: tiny`, or give a `program` of your own",
            );
        }
        let recipe = Recipe {
            name,
            model,
            parallel: s.section("parallel", "Degrees of the mesh of ranks.", parallel::read),
            batch: s.section("batch", "Sequences of a micro-batch and of a step.", |s| {
                batch::read(s, trained)
            }),
            train: s.section("train", "The training itself.", |s| train::read(s, trained)),
            data: s.section("data", "The tokens.", |s| data::read(s, trained)),
            checkpoint: checkpoint::read(s, !foreign),
            job: s.section("job", "The allocation.", job::read),
            environment: s.section(
                "environment",
                "What ranks find in their environment.",
                environment::read,
            ),
            program: s.section(
                "program",
                "A trainer of your own, in place of the bundled one.",
                program::read,
            ),
            restart: s.section("restart", "What happens after failures.", restart::read),
            chain: chain::chain(s),
            limits: s.section("limits", "When a chain of jobs stops.", chain::limits),
            notify: s.section(
                "notify",
                "Who is told how a run ends; in place of `notify` of the user config.",
                notify::read,
            ),
        };
        (recipe, root.finish())
    }
}

fn name(s: &mut Section) -> Option<Given<String>> {
    let name = s.text(
        "name",
        "Name of the run: a-z, 0-9 and `-`, at most 40.",
        Some(NAME),
    );
    s.missing(
        "name",
        "runs are found by it: add a line such as `name: first`",
    );
    let name = name?;
    let good = (1..=40).contains(&name.value.len())
        && name
            .value
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        // `last` names the newest run, and a leading `-` would read as a flag.
        && name.value != "last"
        && !name.value.starts_with('-');
    if !good {
        let proposed: String = name
            .value
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(40)
            .collect();
        let mut fault =
            Diagnostic::error(
            "name",
            "a name has 1 to 40 characters of a-z, 0-9 and `-`, does not begin with `-` and is not `last`",
        )
                .at(name.at, "not a name");
        if !proposed.trim_matches('-').is_empty() {
            fault = fault.help(format!("for example `{}`", proposed.trim_matches('-')));
        }
        s.fault(fault);
    }
    Some(name)
}
