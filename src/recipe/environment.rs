//! `environment`: variables and shell lines of the user.

use super::diagnostic::Diagnostic;
use super::section::{Given, Section};

#[derive(Debug, Clone, PartialEq)]
pub struct Environment {
    /// By name.
    pub variables: Vec<(Given<String>, Given<String>)>,
    pub setup: Option<Given<String>>,
    pub modules: Vec<Given<String>>,
}

pub(super) fn read(s: &mut Section) -> Environment {
    s.later(&["conda", "container", "python"]);
    let modules = s.texts(
        "modules",
        "Modules that the job loads, after the profile's.",
    );
    let modules = modules.map(|g| g.value).unwrap_or_default();
    let read = s.words(
        "variables",
        "Variables of every rank; `{dotted.key}` stands for a value of the plan, `{{` for a brace.",
        false,
    );
    let mut variables = Vec::new();
    for (name, values, _) in read {
        if !is_name(&name.value) {
            s.fault(
                Diagnostic::error(
                    "variable-name",
                    format!("`{}` cannot name a variable", name.value.escape_debug()),
                )
                .at(name.at, "")
                .help("use letters, digits and `_`, not a digit first"),
            );
            continue;
        }
        if is_of_the_shell(&name.value) {
            let message = format!(
                "`{}` belongs to the shell, which gives it values of its own",
                name.value
            );
            s.fault(
                Diagnostic::error("variable-name", message)
                    .at(name.at, "")
                    .help("choose another name"),
            );
            continue;
        }
        if is_ours(&name.value) {
            s.fault(
                Diagnostic::error(
                    "variable-name",
                    format!("`{}` is set by haul itself", name.value),
                )
                .at(name.at, "")
                .help("remove it; docs/trainer-contract.md lists what every rank is given"),
            );
            continue;
        }
        variables.extend(values.into_iter().next().map(|value| (name, value)));
    }
    Environment {
        variables,
        modules,
        setup: s.text(
            "setup",
            "Shell lines that the job runs first; a failing one ends it.",
            None,
        ),
    }
}

/// Can `name` name a variable in every shell?
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Variables that bash does not let a script set as it likes: read-only ones, ones that change by themselves, and ones
/// whose value it takes for arithmetic, in which it would run `a[$(command)]`.
pub fn is_of_the_shell(name: &str) -> bool {
    const NAMES: [&str; 28] = [
        "_",
        "BASHOPTS",
        "BASHPID",
        "BASH_ALIASES",
        "BASH_ARGC",
        "BASH_ARGV",
        "BASH_CMDS",
        "BASH_COMMAND",
        "BASH_LINENO",
        "BASH_SOURCE",
        "BASH_SUBSHELL",
        "BASH_VERSINFO",
        "DIRSTACK",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "HISTCMD",
        "LINENO",
        "OPTIND",
        "PPID",
        "RANDOM",
        "SECONDS",
        "SHELLOPTS",
        "SHLVL",
        "SRANDOM",
        "UID",
    ];
    NAMES.contains(&name)
}

/// Variables of the trainer contract.
fn is_ours(name: &str) -> bool {
    use haul_runtime::contract::env;
    name.starts_with("HAUL_")
        || [
            env::RANK,
            env::LOCAL_RANK,
            env::WORLD_SIZE,
            env::LOCAL_WORLD_SIZE,
            env::MASTER_ADDR,
            env::MASTER_PORT,
        ]
        .contains(&name)
}
