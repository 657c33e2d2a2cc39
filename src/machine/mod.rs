//! Where a recipe runs: machine profiles and the user's config.

pub mod hostlist;
pub mod profile;
pub mod user;

pub use profile::Machine;

use crate::recipe::diagnostic::{Diagnostic, Sources, Span};
use crate::recipe::section::{Notes, list, suggestion};
use crate::recipe::source;
use crate::recipe::yaml::{self, Origin};
use std::path::{Path, PathBuf};

/// Profiles inside the binary.
const EMBEDDED: &[(&str, &str)] = &[
    ("local", include_str!("../../recipes/machines/local.yaml")),
    (
        "frontier",
        include_str!("../../recipes/machines/frontier.yaml"),
    ),
    ("lumi-g", include_str!("../../recipes/machines/lumi-g.yaml")),
    (
        "slurm-cpu",
        include_str!("../../recipes/machines/slurm-cpu.yaml"),
    ),
    (
        "slurm-gpu",
        include_str!("../../recipes/machines/slurm-gpu.yaml"),
    ),
];

/// Who named the profile, and what a relative path is relative to.
pub struct Choice<'a> {
    pub name: &'a str,
    pub at: Option<Span>,
    pub directory: &'a Path,
}

/// Finds and reads a profile: a name of [`EMBEDDED`], or a file (with a `/` or the suffix `.yaml`).
pub fn load(
    choice: &Choice,
    sources: &mut Sources,
    faults: &mut Vec<Diagnostic>,
) -> Option<Machine> {
    let name = choice.name;
    let node = if name.contains('/') || name.ends_with(".yaml") || name.ends_with(".yml") {
        let path: PathBuf = choice.directory.join(name);
        source::tree(
            &path,
            "machine profile",
            Origin::Profile,
            choice.at,
            sources,
            faults,
        )?
        .0
    } else if let Some((_, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) {
        let source = sources.add(format!("machines/{name}.yaml"), *text, "");
        yaml::parse(sources, source, Origin::Profile, faults)?
    } else {
        let known: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        let help = match suggestion(name, known.iter().copied()) {
            Some(known) => format!("did you mean `{known}`?"),
            None => format!("profiles are {}; a file is named by its path", list(&known)),
        };
        faults.push(
            Diagnostic::error(
                "unknown-machine",
                format!("no machine profile is called `{}`", name.escape_debug()),
            )
            .at(choice.at, "named here")
            .help(help),
        );
        return None;
    };
    let mut notes = Notes::default();
    let machine = Machine::read(Some(&node), &mut notes).0;
    let sound = notes.faults.is_empty();
    faults.append(&mut notes.faults);
    machine.filter(|_| sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> (Option<Machine>, Vec<String>) {
        let mut faults = Vec::new();
        let choice = Choice {
            name,
            at: None,
            directory: Path::new(""),
        };
        let machine = load(&choice, &mut Sources::default(), &mut faults);
        let told = faults
            .into_iter()
            .map(|f| format!("{} ({})", f.message, f.help.unwrap_or_default()))
            .collect();
        (machine, told)
    }

    #[test]
    fn embedded_profiles_read_without_faults_and_carry_their_own_names() {
        for (name, _) in EMBEDDED {
            let (machine, faults) = read(name);
            assert_eq!(faults, Vec::<String>::new());
            assert_eq!(machine.unwrap().name, *name);
        }
    }

    #[test]
    fn an_unknown_profile_is_refused_with_those_there_are() {
        assert_eq!(
            read("frontie").1,
            ["no machine profile is called `frontie` (did you mean `frontier`?)"]
        );
        assert_eq!(
            read("summit-x").1,
            [
                "no machine profile is called `summit-x` (profiles are `local`, `frontier`, `lumi-g`, `slurm-cpu` or `slurm-gpu`; a file is named by its path)"
            ]
        );
    }
}
