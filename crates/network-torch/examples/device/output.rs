//! Lines of output: one JSON object per quantity.

use serde_json::{Value, json};

use crate::Settings;

/// Consequence of a missed bar.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A wrong result: the check fails.
    Correctness,
    /// A slow result: the check warns.
    Speed,
}

impl Settings {
    /// Prints a value that must be at most `bar`; NaN misses every bar.
    pub(super) fn at_most(&self, kind: Kind, name: &str, (value, unit): (f64, &str), bar: f64) {
        self.line(name, json!(value), unit, &format!("<= {bar}"), kind.name(), Some(value <= bar));
    }

    /// Prints a value that must be at least `bar`; NaN misses every bar.
    pub(super) fn at_least(&self, kind: Kind, name: &str, (value, unit): (f64, &str), bar: f64) {
        self.line(name, json!(value), unit, &format!(">= {bar}"), kind.name(), Some(value >= bar));
    }

    /// Prints a claim that must hold, with the finding.
    pub(super) fn claim(&self, name: &str, found: &str, holds: bool) {
        self.line(name, json!(found), "", "holds", Kind::Correctness.name(), Some(holds));
    }

    /// Prints a value without a bar.
    pub(super) fn value(&self, name: &str, value: f64, unit: &str) {
        self.line(name, json!(value), unit, "", "information", None);
    }

    /// Prints a text without a bar.
    pub(super) fn text(&self, name: &str, text: &str) {
        self.line(name, json!(text), "", "", "information", None);
    }

    /// Prints that something was not checked, with the reason.
    pub(super) fn skipped(&self, name: &str, reason: &str) {
        self.line(name, json!(reason), "", "", "skipped", None);
    }

    fn line(&self, name: &str, value: Value, unit: &str, bar: &str, kind: &str, ok: Option<bool>) {
        let step = self.step;
        println!(
            "{}",
            json!({"step": step, "name": name, "value": value, "unit": unit, "bar": bar, "kind": kind, "ok": ok})
        );
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Correctness => "correctness",
            Self::Speed => "speed",
        }
    }
}
