//! Flags, words, exit codes: one file a command, each one call into `actions`.

pub mod exit;

mod archive;
mod cancel;
mod check;
mod completions;
mod doctor;
mod init;
mod keep;
mod launch;
mod logs;
mod plan;
mod prune;
mod rank;
mod render;
mod report;
mod resume;
mod run;
mod sample;
mod schema;
mod status;
mod submit;
mod supervise;
mod worker;

use clap::{Args, Parser, Subcommand};
use exit::Exit;
use std::path::PathBuf;

/// Run large-model training on Slurm clusters, or on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "haul",
    // Jobs run a copy that is named by its hash.
    bin_name = "haul",
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Run root: where runs, their logs and checkpoints live [env: HAUL_ROOT] [default: ./logs]
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

/// Options of commands that read a recipe.
#[derive(Debug, Clone, Default, Args)]
pub struct RecipeArgs {
    /// Recipe file (YAML)
    #[arg(value_name = "RECIPE")]
    pub recipe: PathBuf,
    /// Override a value, such as train.until.steps=50; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Machine profile: a name or a file [default: local]
    #[arg(long, env = "HAUL_MACHINE", value_name = "NAME")]
    pub machine: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Submit a recipe and follow it to its end
    Run(run::Command),
    /// Submit a recipe and return at once
    Submit(submit::Command),
    /// Read a recipe and tell all its faults
    Check(check::Command),
    /// Show what would run: layout, memory, FLOPs, time
    Plan(plan::Command),
    /// Show the job script and the launch script of a recipe
    Render(render::Command),
    /// Show runs and what they are doing
    Status(status::Command),
    /// Show the log of a run
    Logs(logs::Command),
    /// Stop a run
    Cancel(cancel::Command),
    /// Continue a run from its newest checkpoint
    Resume(resume::Command),
    /// Tell what a run did: loss, speed, time lost
    Report(report::Command),
    /// Write text with a trained checkpoint
    Sample(sample::Command),
    /// Show what nobody needs any more, and remove it with --yes
    Prune(prune::Command),
    /// Pack what a run was and did, without its checkpoints
    Archive(archive::Command),
    /// Print the JSON schema of recipes
    Schema(schema::Command),
    /// Print shell completions
    Completions(completions::Command),
    /// Write a first recipe
    Init(init::Command),
    /// Look at this machine and say what would not work
    Doctor(doctor::Command),
    #[command(hide = true)]
    Keep(keep::Command),
    #[command(hide = true)]
    Supervise(supervise::Command),
    #[command(hide = true)]
    Launch(launch::Command),
    #[command(hide = true)]
    Rank(rank::Command),
    #[command(hide = true)]
    Worker(worker::Command),
}

/// A number of things or of one thing.
fn count<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    let fault = |_| "a whole number is wanted, 0 or more".to_owned();
    text.parse().map_err(fault)
}

/// Parses the command line, carries the command out and maps the outcome to an exit code.
pub fn main() -> std::process::ExitCode {
    let cli = match Cli::try_parse() {
        Ok(mut cli) => {
            // Set but empty counts as not set.
            let root = std::env::var_os("HAUL_ROOT").filter(|root| !root.is_empty());
            cli.global.root = cli.global.root.or(root.map(PathBuf::from));
            cli
        }
        Err(error) => {
            let usage = error.use_stderr();
            let arguments = std::env::args_os().take_while(|argument| argument != "--");
            if usage && arguments.into_iter().any(|argument| argument == "--json") {
                tell_json(&usage_words(&error), &[]);
            }
            // Nothing to do when the terminal is gone.
            let _ = error.print();
            return if usage {
                Exit::Usage.into()
            } else {
                Exit::Done.into()
            };
        }
    };
    let global = &cli.global;
    let outcome = match cli.command {
        Command::Run(c) => c.run(global),
        Command::Submit(c) => c.run(global),
        Command::Check(c) => c.run(global),
        Command::Plan(c) => c.run(global),
        Command::Render(c) => c.run(global),
        Command::Status(c) => c.run(global),
        Command::Logs(c) => c.run(global),
        Command::Cancel(c) => c.run(global),
        Command::Resume(c) => c.run(global),
        Command::Report(c) => c.run(global),
        Command::Sample(c) => c.run(global),
        Command::Prune(c) => c.run(global),
        Command::Archive(c) => c.run(global),
        Command::Schema(c) => c.run(global),
        Command::Completions(c) => c.run(global),
        Command::Init(c) => c.run(global),
        Command::Doctor(c) => c.run(global),
        Command::Keep(c) => c.run(global),
        Command::Supervise(c) => c.run(global),
        Command::Launch(c) => c.run(global),
        Command::Rank(c) => c.run(global),
        Command::Worker(c) => c.run(global),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            if global.json {
                let causes: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
                tell_json(&error.to_string(), &causes);
            }
            crate::ui::error(&error);
            Exit::of(&error).into()
        }
    }
}

/// An error as the one JSON document.
fn tell_json(error: &str, causes: &[String]) {
    let document = serde_json::json!({
        "schema": "haul.error/1",
        "error": error,
        "causes": causes,
    });
    // The exit code tells a reader that has gone.
    let _ = crate::ui::print(&format!("{document:#}\n"));
}

/// What is wrong with the command line, without usage and advice.
fn usage_words(error: &clap::Error) -> String {
    use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    if matches!(
        error.kind(),
        DisplayHelpOnMissingArgumentOrSubcommand | MissingSubcommand
    ) {
        return "a command is missing; haul --help lists them".into();
    }
    let text = error.render().to_string();
    let words = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = words.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        super::Cli::command().debug_assert();
    }

    #[test]
    fn a_number_below_zero_is_told_as_such() {
        use clap::Parser;
        for flag in ["--tokens", "--top-k", "--seed", "--checkpoint"] {
            let error = super::Cli::try_parse_from(["haul", "sample", flag, "-1"]).unwrap_err();
            let words = error.to_string();
            assert!(
                words.contains("whole number") && !words.contains("tip"),
                "{words}"
            );
        }
        let command = super::Cli::try_parse_from(["haul", "sample", "--tokens", "7", "own"]);
        assert!(command.is_ok());
    }

    #[test]
    fn usage_names_the_command_and_not_the_file() {
        use clap::Parser;
        let error = super::Cli::try_parse_from(["/srv/bin/0a1b2c", "status", "--nonsense"]);
        let words = error.unwrap_err().to_string();
        assert!(words.contains("Usage: haul status"), "{words}");
        assert!(!words.contains("0a1b2c"), "{words}");
    }
}
