//! The report of a recorded run directory, in every form, and of damaged, copied, hostile and read-only ones.

#![allow(clippy::unwrap_used)]
use haul::actions::report::{self, Form};
use haul::report::{Summary, compose, html, text};
use haul::store::RunDir;
use haul::ui::style::Style;
use std::path::{Path, PathBuf};
use std::process::Command;

const RUN: &str = "quickstart-261130-s7nt";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/report")
        .join(RUN)
}

/// A copy of the recorded run, as somebody would take it to a laptop.
fn copied() -> (tempfile::TempDir, RunDir) {
    let root = tempfile::tempdir().unwrap();
    copy(&fixture(), &root.path().join(RUN));
    let run = RunDir::new(root.path().join(RUN));
    (root, run)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => std::fs::copy(entry.path(), target).map(|_| ()).unwrap(),
        }
    }
}

fn edit(path: &Path, change: impl Fn(String) -> String) {
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, change(text)).unwrap();
}

fn summary(run: &RunDir) -> Summary {
    report::summarise(run).unwrap()
}

/// What changes with the version of the program only.
fn versionless(text: &str) -> String {
    text.replace(
        &format!("haul {} ·", env!("CARGO_PKG_VERSION")),
        "haul VERSION ·",
    )
}

#[test]
fn the_terminal_report() {
    let document = compose::compose(&summary(&RunDir::new(fixture())));
    let page = text::render(&document, Some(100), Style::PLAIN);
    insta::assert_snapshot!("text", versionless(&page));
    for width in [40, 60, 80, 200] {
        let page = text::render(&document, Some(width), Style::COLOURED);
        let widest = page.lines().map(haul::ui::style::columns).max().unwrap();
        assert!(widest <= 110, "{widest}");
    }
}

#[test]
fn the_end_of_a_run_shows_the_first_figures_only() {
    let (_root, run) = copied();
    let written = report::write(&run).unwrap();
    let full = text::render(&written.document, Some(80), Style::PLAIN);
    let brief = written.brief(Some(80), Style::PLAIN);
    assert!(
        brief.contains("1.7534") && brief.contains("goodput"),
        "{brief}"
    );
    let lines = brief.lines().count();
    assert!(lines < 32 && 3 * lines < full.lines().count(), "{lines}");
}

#[test]
fn the_markdown_report() {
    let page = report::render(&RunDir::new(fixture()), Form::Markdown, Style::PLAIN).unwrap();
    insta::assert_snapshot!("markdown", versionless(&page));
}

#[test]
fn the_json_report() {
    let text = report::render(&RunDir::new(fixture()), Form::Json, Style::PLAIN).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for curve in ["/loss/train", "/speed/curve"] {
        let curve = value.pointer_mut(curve).unwrap().as_array_mut().unwrap();
        assert_eq!(curve.len(), 96);
        curve.truncate(2);
    }
    value["loss"]["abandoned"][0]
        .as_array_mut()
        .unwrap()
        .truncate(2);
    round(&mut value);
    insta::assert_snapshot!("json", serde_json::to_string_pretty(&value).unwrap());
}

/// Six significant digits, since the last bits of `exp` differ between machines; keys in order, since a feature of
/// serde_json that others may turn on keeps them otherwise.
fn round(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Number(number) if number.is_f64() => {
            let rounded: f64 = format!("{:.5e}", number.as_f64().unwrap()).parse().unwrap();
            *value = rounded.into();
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(round),
        serde_json::Value::Object(map) => {
            let sorted: std::collections::BTreeMap<_, _> =
                std::mem::take(map).into_iter().collect();
            map.extend(sorted);
            map.values_mut().for_each(round);
        }
        _ => {}
    }
}

struct Tag {
    name: String,
    attributes: Vec<(String, String)>,
}

/// All tags of a page; fails when they don't nest or an attribute is not quoted.
fn tags(page: &str) -> Vec<Tag> {
    const VOID: [&str; 3] = ["meta", "path", "!DOCTYPE"];
    let mut open: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a tag ends");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "before {part}");
            continue;
        }
        let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
        if !VOID.contains(&name) {
            open.push(name.into());
        }
        let mut attributes = Vec::new();
        while let Some((key, value)) = rest.split_once("=\"") {
            let (value, after) = value.split_once('"').expect("a value ends");
            attributes.push((key.trim().to_owned(), value.to_owned()));
            rest = after;
        }
        let bare = rest.trim_end_matches('/').trim();
        assert!(bare.is_empty() || name == "!DOCTYPE", "<{tag}>: {bare}");
        all.push(Tag {
            name: name.to_owned(),
            attributes,
        });
    }
    assert!(open.is_empty(), "left open: {open:?}");
    all
}

/// One page, nothing from outside, no script, every number drawn finite.
fn check_page(page: &str) {
    const TAGS: [&str; 41] = [
        "!DOCTYPE",
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "header",
        "section",
        "footer",
        "div",
        "span",
        "h1",
        "h2",
        "p",
        "ul",
        "li",
        "i",
        "small",
        "pre",
        "dl",
        "dt",
        "dd",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "figure",
        "figcaption",
        "svg",
        "path",
        "line",
        "rect",
        "circle",
        "text",
        "code",
        "b",
        "em",
    ];
    const NUMBERS: [&str; 11] = [
        "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height",
    ];
    const WORDS: [&str; 11] = [
        "class",
        "title",
        "id",
        "lang",
        "charset",
        "name",
        "content",
        "viewBox",
        "role",
        "aria-label",
        "d",
    ];
    for Tag { name, attributes } in tags(page) {
        assert!(TAGS.contains(&name.as_str()), "<{name}>");
        for (key, value) in attributes {
            if NUMBERS.contains(&key.as_str()) {
                let number: f64 = value.parse().unwrap();
                assert!(number.is_finite(), "<{name} {key}={value}>");
            } else {
                assert!(WORDS.contains(&key.as_str()), "<{name} {key}={value}>");
            }
            if key == "d" {
                let numbers: Vec<&str> = value
                    .split(['M', 'L', ' '])
                    .filter(|n| !n.is_empty())
                    .collect();
                assert!(numbers.len() >= 4, "{value}");
                assert!(
                    numbers
                        .iter()
                        .all(|n| n.parse::<f64>().unwrap().is_finite()),
                    "{value}"
                );
            }
        }
    }
    let style = page
        .split("<style>")
        .nth(1)
        .unwrap()
        .split("</style>")
        .next()
        .unwrap();
    for bad in ["url(", "@import", "http"] {
        assert!(!style.contains(bad), "{bad}");
    }
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("javascript:"));
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let page = report::render(&RunDir::new(fixture()), Form::Html, Style::PLAIN).unwrap();
    check_page(&page);
    assert_eq!(
        page.matches("<svg").count(),
        4,
        "loss, step times, phases, time"
    );
    assert!(page.contains("attempt 2 goes on from step 40"));
    assert!(page.contains("rank 1 on local0 was killed by SIGKILL"));
}

#[test]
fn values_are_text_everywhere() {
    let (_root, run) = copied();
    let evil = "<script>alert(1)</script>\" onload=\"x' & | `";
    let json = serde_json::to_string(evil).unwrap();
    let inner = json[1..json.len() - 1].to_owned();
    edit(&run.plan(1), |text| {
        let text = text.replace("\"quickstart\"", &json);
        text.replace(
            "\"profile\": \"local\"",
            &format!("\"profile\": \"{inner}\""),
        )
        .replace("\"activations\"", &json)
    });
    edit(&run.provenance(), |text| text.replace("node01", &inner));
    for file in ["placement.json", "binding.jsonl"] {
        edit(&run.attempt(2).join(file), |text| {
            text.replace("local0", &inner)
        });
    }
    // A terminal must not be steered either.
    edit(&run.provenance(), |text| {
        text.replace("someone", "some\\u001b[2Jone")
    });
    let summary = summary(&run);
    assert!(summary.warnings.is_empty(), "{:?}", summary.warnings);
    let document = compose::compose(&summary);
    let page = html::render(&document).unwrap();
    check_page(&page);
    assert!(page.matches("&lt;script&gt;").count() >= 6, "{page}");
    assert!(!page.contains("<script"));
    let markdown = report::render(&run, Form::Markdown, Style::PLAIN).unwrap();
    assert!(!markdown.contains("<script") && markdown.contains("&lt;script&gt;"));
    let terminal = text::render(&document, Some(100), Style::PLAIN);
    assert!(!terminal.contains('\x1b') && terminal.contains("some\\u{1b}[2Jone"));
}

#[test]
fn damage_is_told_and_the_rest_is_reported() {
    let (_root, run) = copied();
    edit(&run.metrics(2), |text| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.insert(5, "not a line");
        lines.insert(9, r#"{"schema":2,"kind":"weather","step":3,"mood":"fine"}"#);
        lines.join("\n") + "\n{\"kind\":\"step\",\"st"
    });
    edit(&run.journal().join("2-supervisor.jsonl"), |text| {
        text.replace("local0", "local1")
    });
    std::fs::write(run.attempt(1).join("verdict.json"), "{").unwrap();
    std::fs::write(run.provenance(), "").unwrap();
    std::fs::remove_file(run.attempt(1).join("binding.jsonl")).unwrap();
    let summary = summary(&run);
    let warnings = summary.warnings.join("\n");
    for words in [
        "attempts/2/metrics.jsonl: 1 damaged line left out",
        "attempts/2/metrics.jsonl: 1 unfinished line left out",
        "journal: 3 damaged lines left out",
        "attempts/1/verdict.json: unreadable",
        "provenance.json: unreadable",
    ] {
        let told = warnings.matches(words).count();
        assert_eq!(told, 1, "{words} not once in\n{warnings}");
    }
    assert_eq!(summary.loss.train.len(), 96);
    assert!(summary.time.goodput.is_some());
    check_page(&report::render(&run, Form::Html, Style::PLAIN).unwrap());
}

#[test]
fn a_run_that_goes_on_has_a_report_so_far() {
    let (_root, run) = copied();
    edit(&run.metrics(2), |text| {
        let lines: Vec<&str> = text.lines().take(20).collect();
        lines.join("\n") + "\n"
    });
    edit(&run.journal().join("2-supervisor.jsonl"), |text| {
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.contains("all 2 ranks"))
            .collect();
        lines[..lines.len() - 1].join("\n") + "\n"
    });
    std::fs::remove_file(run.attempt(2).join("verdict.json")).unwrap();
    let summary = summary(&run);
    assert_eq!(summary.state.outcome, None);
    assert!(summary.steps.last.unwrap() < 60);
    assert_eq!(summary.steps.planned, Some(96));
    let page = report::render(&run, Form::Text, Style::PLAIN).unwrap();
    assert!(page.contains("unfinished"), "{page}");
}

#[test]
fn ranks_that_share_cores_have_no_speed() {
    let (_root, run) = copied();
    edit(&run.plan(1), |text| {
        text.replace("\"shared_cores\": false", "\"shared_cores\": true")
    });
    let summary = summary(&run);
    assert!(summary.speed.is_none());
    let page = report::render(&run, Form::Text, Style::PLAIN).unwrap();
    assert!(page.contains("ranks share cores"), "{page}");
    assert!(!page.contains("FLOP/s"), "{page}");
}

fn haul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.env_remove("HAUL_ROOT");
    command
}

#[test]
fn the_command_keeps_the_report_and_names_it() {
    let (root, run) = copied();
    let output = haul()
        .arg("report")
        .arg("--root")
        .arg(root.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let kept = run.report().join("report.html");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(kept.to_str().unwrap()), "{said}");
    check_page(&std::fs::read_to_string(&kept).unwrap());
    let json = std::fs::read_to_string(run.report().join("report.json")).unwrap();
    assert!(json.contains("\"schema\": \"haul.report/1\""));
    assert_eq!(
        std::fs::read_dir(run.report()).unwrap().count(),
        3,
        "no temporary files are left beside the two and the sample"
    );

    // --json prints the very same document; -o writes it elsewhere, here without any directory in its name.
    let output = haul()
        .args(["--json", "report", "--dir"])
        .arg(run.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), json);
    let status = haul()
        .current_dir(root.path())
        .args(["report", "--md", "-o", "out.md", "--dir", RUN])
        .status()
        .unwrap();
    assert!(status.success());
    let markdown = std::fs::read_to_string(root.path().join("out.md")).unwrap();
    assert!(markdown.starts_with("# quickstart"));
}

#[test]
fn a_place_that_cannot_be_written_is_told_and_the_report_still_shown() {
    let (_root, run) = copied();
    // Also root cannot make a directory where a file stands.
    std::fs::remove_dir_all(run.report()).unwrap();
    std::fs::write(run.report(), "").unwrap();
    let output = haul()
        .arg("report")
        .arg("--dir")
        .arg(run.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("validation loss")
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("no report was kept in the run directory"),
        "{said}"
    );
}

#[test]
fn a_directory_that_is_no_run_is_refused() {
    let root = tempfile::tempdir().unwrap();
    for path in [root.path().to_path_buf(), root.path().join("missing")] {
        let output = haul()
            .arg("report")
            .arg("--dir")
            .arg(&path)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(path.to_str().unwrap()), "{said}");
    }
}
