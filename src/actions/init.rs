//! `haul init`: writes a first recipe, and never over a file.

use anyhow::{Context, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the recipe that is written.
pub const FILE: &str = "recipe.yaml";
const RECIPE: &str = include_str!("init.yaml");
const TEXT: &str = include_str!("init.txt");

/// Writes a commented recipe, its schema for editors and a text to train on into `directory`. Gives the recipe's path.
pub fn init(directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    let recipe = directory.join(FILE);
    // The recipe first: where it exists, nothing else is touched.
    create(&recipe, RECIPE)?;
    create_unless_there(
        &directory.join("recipe.schema.json"),
        &crate::recipe::schema::text(),
    )?;
    create_unless_there(&directory.join("text.txt"), TEXT)?;
    Ok(recipe)
}

fn create(path: &Path, text: &str) -> Result<()> {
    let mut file = std::fs::File::create_new(path).with_context(|| match path.exists() {
        true => format!(
            "{} exists and is left as it is; name another directory",
            path.display()
        ),
        false => format!("cannot create {}", path.display()),
    })?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

fn create_unless_there(path: &Path, text: &str) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    create(path, text)
}
