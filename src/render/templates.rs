//! The templates of scripts: embedded, or from a directory of the user. Every value is quoted, by the suffix of no file.

use super::RenderError;
use super::quote;
use std::io::Write;
use std::path::Path;
use tera::{Context, Tera};

const SBATCH: &str = "job.sbatch.tera";
const JOB: &str = "job.sh.tera";
const LAUNCH: &str = "launch.sh.tera";

const EMBEDDED: [(&str, &str); 3] = [
    (SBATCH, include_str!("../../templates/job.sbatch.tera")),
    (JOB, include_str!("../../templates/job.sh.tera")),
    (LAUNCH, include_str!("../../templates/launch.sh.tera")),
];

/// One engine a language, each with its own escape.
pub struct Templates {
    shell: Tera,
    sbatch: Tera,
}

impl Templates {
    /// Those inside the binary.
    pub fn embedded() -> Result<Templates, RenderError> {
        Templates::load(None)
    }

    /// Those of `directory`, for each file that is there; else those inside the binary.
    pub fn from_directory(directory: &Path) -> Result<Templates, RenderError> {
        Templates::load(Some(directory))
    }

    fn load(directory: Option<&Path>) -> Result<Templates, RenderError> {
        let held = |directory: &Path| {
            EMBEDDED
                .iter()
                .any(|(name, _)| directory.join(name).exists())
        };
        if let Some(directory) = directory.filter(|directory| !held(directory)) {
            let names: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
            return Err(RenderError::NoTemplate {
                directory: directory.to_path_buf(),
                names: names.join(", "),
            });
        }
        let mut templates = Templates {
            shell: engine(|text, out| out.write_all(quote::shell(text).as_bytes())),
            sbatch: engine(|text, out| out.write_all(quote::sbatch(text).as_bytes())),
        };
        for (name, embedded) in EMBEDDED {
            let text = match directory.map(|d| d.join(name)) {
                None => embedded.to_string(),
                Some(path) => match std::fs::read_to_string(&path) {
                    Ok(text) => text,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        embedded.to_string()
                    }
                    Err(source) => return Err(RenderError::TemplateFile { path, source }),
                },
            };
            let engine = if name == SBATCH {
                &mut templates.sbatch
            } else {
                &mut templates.shell
            };
            engine.add_raw_template(name, &text).map_err(fault(name))?;
        }
        Ok(templates)
    }

    pub(super) fn sbatch(&self, values: &serde_json::Value) -> Result<String, RenderError> {
        render(&self.sbatch, SBATCH, values)
    }

    pub(super) fn job(&self, values: &serde_json::Value) -> Result<String, RenderError> {
        render(&self.shell, JOB, values)
    }

    pub(super) fn launch(&self, values: &serde_json::Value) -> Result<String, RenderError> {
        render(&self.shell, LAUNCH, values)
    }
}

fn engine(escape: fn(&str, &mut dyn Write) -> std::io::Result<()>) -> Tera {
    let mut tera = Tera::default();
    // Every name ends with nothing: escaping is never off.
    tera.autoescape_on([""]);
    tera.set_escape_fn(escape);
    // Templates of the user, too, cannot switch it off.
    tera.register_filter(
        "safe",
        |_: tera::Value, _: tera::Kwargs, _: &tera::State| -> tera::TeraResult<tera::Value> {
            Err(tera::Error::message(
                "`safe` would leave a value unquoted; it is not allowed in scripts",
            ))
        },
    );
    tera
}

fn fault(template: &'static str) -> impl FnOnce(tera::Error) -> RenderError {
    move |source| RenderError::Template {
        template,
        source: Box::new(source),
    }
}

fn render(
    tera: &Tera,
    name: &'static str,
    values: &serde_json::Value,
) -> Result<String, RenderError> {
    let context = Context::from_serialize(values).map_err(fault(name))?;
    tera.render(name, &context).map_err(fault(name))
}
