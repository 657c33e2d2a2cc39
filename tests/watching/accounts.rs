//! Node-hours and queue time.

use crate::desk::{Desk, json, text, token};
use haul::store::accounts;

#[test]
fn they_are_not_yet_known_then_told_and_kept_once_they_are_final() {
    let desk = Desk::new("1s");
    let run = desk.run();
    let name = token(&run);
    // The controller knows the end, accounting lags.
    desk.says("squeue", &format!("1|COMPLETED|1764580000|None|{name}\n"));
    desk.says(
        "sacct",
        &format!("1|RUNNING|0:0|1764580000|Unknown|1764579000|1764579900|50|2|{name}\n"),
    );
    let told = text(&desk.haul(&["status", "last"]));
    // Two nodes for ten minutes were asked for.
    assert!(told.contains("not yet known; 0.33 requested"), "{told}");
    assert_eq!(accounts::kept(&run, 1), None);
    std::thread::sleep(std::time::Duration::from_millis(1400));
    let requeued = format!(
        "1|NODE_FAIL|0:0|1764580000|1764580100|1764579000|1764579900|100|2|{name}\n1|COMPLETED|0:0|1764580200|1764580460|1764579000|1764580120|260|2|{name}\n"
    );
    desk.says("sacct", &requeued);
    let told = text(&desk.haul(&["status", "last"]));
    assert!(told.contains("0.20 of 0.33 requested"), "{told}");
    assert!(told.contains("queue time   3m00s"), "{told}");
    // Kept: nobody is asked again.
    assert_eq!(accounts::kept(&run, 1).unwrap().len(), 2);
    desk.says("sacct", "");
    std::fs::remove_dir_all(desk.root().path().join(".slurm")).unwrap();
    let report = json(&desk.haul(&["report", "last", "--json"]));
    let account = &report["accounting"];
    for hours in ["used_node_hours", "charged"] {
        let hours = account[hours].as_f64().unwrap();
        assert!((hours - 0.2).abs() < 1e-9, "{account}");
    }
    assert_eq!(account["unit"], "node-hours");
    assert_eq!(account["queue_seconds"], 180.0);
    let report = text(&desk.haul(&["report", "last"]));
    assert!(
        report.contains("queue time") && report.contains("0.20 of 0.33 requested"),
        "{report}"
    );
}
