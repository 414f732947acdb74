//! The ranges of the tuned settings. Samplers and diagrams map each value to a coordinate from 0 to 1.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use service::ConfigError;

/// Maximum number of values in a range of integers.
const VALUES_MAX: i64 = 1_000_000_000;

/// Number of significant digits in proposed numbers. With few digits, numbers are easy to read, and conversion to text
/// is exact.
const DIGITS: usize = 6;

/// The values of the tuned settings in one trial, by key, such as `learner.learning_rate`.
pub(crate) type Values = BTreeMap<String, Value>;

/// A setting that a study tunes, with the range of values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    /// Key in the run file, such as `learner.learning_rate`.
    pub key: String,
    /// Range of values that trials may use.
    pub range: Range,
}

#[cfg(test)]
impl Setting {
    /// Returns the setting for a key, with a range in the form of a study file.
    pub(super) fn written(key: &str, values: &serde_json::Value) -> Self {
        Self { key: key.to_owned(), range: Range::new(key, values).unwrap() }
    }
}

/// The range of a tuned setting: the values that trials may use.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Range {
    /// Real numbers from `min` to `max`, uniform in the scale.
    Number { min: f64, max: f64, scale: Scale },
    /// Integers from `min` to `max` in steps of `step`, uniform in the scale.
    Whole { min: i64, max: i64, step: i64, scale: Scale },
    /// At least two distinct values without an order.
    Choices(Vec<Value>),
}

/// The scale on which numbers of a range are uniformly distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

/// A range as written in a study file, before checking.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    min: Option<Value>,
    max: Option<Value>,
    step: Option<Value>,
    #[serde(default)]
    log: bool,
    choices: Option<Vec<Value>>,
}

impl Range {
    /// Checks and converts the range written in the study file for the key `field`.
    ///
    /// # Errors
    /// A part of the range is missing or invalid; [`ConfigError`] names the part.
    pub(super) fn new(field: &str, written: &Value) -> Result<Self, ConfigError> {
        let written: Written = Written::deserialize(written).map_err(|error| ConfigError::invalid(field, error))?;
        match written {
            Written { choices: Some(choices), min: None, max: None, step: None, log: false } => {
                checked_choices(field, choices)
            }
            Written { choices: Some(_), .. } => {
                Err(ConfigError::invalid(field, "has choices; remove min, max, step and log"))
            }
            Written { min: Some(min), max: Some(max), step, log, .. } => {
                let scale = if log { Scale::Logarithmic } else { Scale::Linear };
                match (min.as_i64(), max.as_i64(), step) {
                    (Some(min), Some(max), step) => checked_whole(field, min, max, step, scale),
                    (.., Some(_)) => Err(ConfigError::invalid(
                        format!("{field}.step"),
                        "needs integers, but min or max is not an integer",
                    )),
                    (.., None) => checked_numbers(field, &min, &max, scale),
                }
            }
            _ => Err(ConfigError::invalid(field, "needs min and max, or choices")),
        }
    }

    /// Returns the value at a coordinate, which is clamped to the interval from 0 to 1.
    pub(super) fn value(&self, coordinate: f64) -> Value {
        let coordinate = coordinate.clamp(0.0, 1.0);
        match self {
            Self::Number { min, max, scale } => {
                let exact = scale.between(*min, *max, coordinate);
                Value::from(rounded(exact, DIGITS).clamp(*min, *max))
            }
            Self::Whole { min, max, step, scale: Scale::Linear } => {
                Value::from(min + step * cell(coordinate, (max - min) / step + 1))
            }
            Self::Whole { min, max, step, scale: scale @ Scale::Logarithmic } => {
                let between = scale.between(*min as f64, *max as f64, coordinate);
                // The conversion is exact: a range has fewer values than a float represents exactly.
                let steps = ((between - *min as f64) / *step as f64).round() as i64;
                Value::from((min + step * steps).clamp(*min, *max))
            }
            Self::Choices(choices) => choices[cell(coordinate, choices.len() as i64) as usize].clone(),
        }
    }

    /// Returns the coordinate of a value; `None` if the range does not contain the value. For integers and choices,
    /// this is the midpoint of the coordinates that map to the value.
    pub(super) fn coordinate(&self, value: &Value) -> Option<f64> {
        let middle = |cell: i64, cells: i64| (cell as f64 + 0.5) / cells as f64;
        match self {
            Self::Number { min, max, scale } => {
                let value = value.as_f64().filter(|value| (*min..=*max).contains(value))?;
                Some(scale.share(*min, *max, value))
            }
            Self::Whole { min, max, step, scale } => {
                let value =
                    value.as_i64().filter(|value| (*min..=*max).contains(value) && (value - min) % step == 0)?;
                Some(match scale {
                    Scale::Linear => middle((value - min) / step, (max - min) / step + 1),
                    Scale::Logarithmic => scale.share(*min as f64, *max as f64, value as f64),
                })
            }
            Self::Choices(choices) => {
                let cell = choices.iter().position(|choice| choice == value)?;
                Some(middle(cell as i64, choices.len() as i64))
            }
        }
    }

    /// Returns the index of the choice at a coordinate and the number of choices; `None` for numeric ranges.
    pub(super) fn choice(&self, coordinate: f64) -> Option<(usize, usize)> {
        let Self::Choices(choices) = self else { return None };
        Some((cell(coordinate, choices.len() as i64) as usize, choices.len()))
    }

    /// Returns both bounds of a range of numbers, or all choices.
    pub(super) fn ends(&self) -> Vec<Value> {
        match self {
            Self::Number { .. } | Self::Whole { .. } => vec![self.value(0.0), self.value(1.0)],
            Self::Choices(choices) => choices.clone(),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = match self {
            Self::Number { scale, .. } | Self::Whole { scale, .. } => *scale,
            Self::Choices(choices) => {
                return f.write_str(&choices.iter().map(short).collect::<Vec<_>>().join(", "));
            }
        };
        let ends: Vec<String> = self.ends().iter().map(short).collect();
        f.write_str(&ends.join(" to "))?;
        if let Self::Whole { step, .. } = self
            && *step > 1
        {
            write!(f, " in steps of {step}")?;
        }
        if scale == Scale::Logarithmic { f.write_str(", logarithmic") } else { Ok(()) }
    }
}

fn checked_choices(field: &str, choices: Vec<Value>) -> Result<Range, ConfigError> {
    let invalid = |reason: &str| Err(ConfigError::invalid(format!("{field}.choices"), reason));
    if choices.len() < 2 {
        return invalid("needs at least two values");
    }
    if choices.iter().enumerate().any(|(index, choice)| choices[..index].contains(choice)) {
        return invalid("contains a value twice");
    }
    if choices.iter().any(Value::is_object) {
        return invalid("must be numbers, strings, true, false, or lists");
    }
    Ok(Range::Choices(choices))
}

fn checked_numbers(field: &str, min: &Value, max: &Value, scale: Scale) -> Result<Range, ConfigError> {
    let number = |name: &str, value: &Value| {
        let number = value.as_f64().filter(|number| number.is_finite());
        number.ok_or_else(|| ConfigError::invalid(format!("{field}.{name}"), format!("is {value}, must be a number")))
    };
    let (min, max) = (number("min", min)?, number("max", max)?);
    check_order(field, min, max, scale)?;
    if !(max - min).is_finite() {
        return Err(ConfigError::invalid(field, "is too wide"));
    }
    Ok(Range::Number { min, max, scale })
}

fn checked_whole(field: &str, min: i64, max: i64, step: Option<Value>, scale: Scale) -> Result<Range, ConfigError> {
    check_order(field, min as f64, max as f64, scale)?;
    let width = max.checked_sub(min).filter(|width| (1..VALUES_MAX).contains(width));
    let width = width.ok_or_else(|| ConfigError::invalid(field, format!("contains more than {VALUES_MAX} values")))?;
    let step = match step {
        None => 1,
        Some(step) => {
            let whole = step.as_i64().filter(|&step| step >= 1 && width % step == 0);
            let reason = || format!("is {step}, must be a positive integer that divides max - min ({width})");
            whole.ok_or_else(|| ConfigError::invalid(format!("{field}.step"), reason()))?
        }
    };
    Ok(Range::Whole { min, max, step, scale })
}

fn check_order(field: &str, min: f64, max: f64, scale: Scale) -> Result<(), ConfigError> {
    if min >= max {
        return Err(ConfigError::invalid(format!("{field}.max"), format!("is {max}, must be above min ({min})")));
    }
    if scale == Scale::Logarithmic && min <= 0.0 {
        return Err(ConfigError::invalid(format!("{field}.min"), format!("is {min}, must be above 0 if log is true")));
    }
    Ok(())
}

impl Scale {
    /// Interpolates between `min` and `max` on this scale; `share` is the fraction of the way from `min`, from 0 to 1.
    fn between(self, min: f64, max: f64, share: f64) -> f64 {
        match self {
            // Returns the bounds exactly, without rounding errors.
            _ if share <= 0.0 => min,
            _ if share >= 1.0 => max,
            Self::Linear => min + (max - min) * share,
            Self::Logarithmic => (min.ln() + (max.ln() - min.ln()) * share).exp(),
        }
    }

    /// Returns the fraction of the way from `min` to `max`, from 0 to 1, at which `value` lies on this scale: the
    /// inverse of [`between`](Self::between).
    fn share(self, min: f64, max: f64, value: f64) -> f64 {
        let share = match self {
            Self::Linear => (value - min) / (max - min),
            Self::Logarithmic => (value.ln() - min.ln()) / (max.ln() - min.ln()),
        };
        share.clamp(0.0, 1.0)
    }
}

/// Divides the interval from 0 to 1 into `cells` equal parts, and returns the index of the part that contains the
/// coordinate.
fn cell(coordinate: f64, cells: i64) -> i64 {
    ((coordinate * cells as f64) as i64).clamp(0, cells - 1)
}

/// Rounds a number to `digits` significant digits.
pub(super) fn rounded(number: f64, digits: usize) -> f64 {
    format!("{number:.*e}", digits - 1).parse().unwrap_or(number)
}

/// Formats a value as text for `--set`. JSON scalars and lists of scalars are also valid TOML.
pub(super) fn text(value: &Value) -> String {
    value.to_string()
}

/// Formats a value for a table, with numbers rounded to at most four significant digits.
pub(super) fn short(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            let rounded = rounded(number, 4);
            let is_plain = rounded == 0.0 || (1e-4..1e5).contains(&rounded.abs());
            if is_plain { rounded.to_string() } else { format!("{rounded:e}") }
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(written: Value) -> Range {
        Range::new("settings.x", &written).unwrap()
    }

    fn refusal(written: Value) -> String {
        Range::new("settings.x", &written).unwrap_err().to_string()
    }

    #[test]
    fn a_logarithmic_range_has_its_geometric_mean_in_the_middle_and_a_linear_one_the_mean() {
        let middle = |written| range(written).value(0.5).as_f64().unwrap();
        assert!((middle(json!({"min": 1e-4, "max": 1e-2, "log": true})) - 1e-3).abs() < 1e-12);
        assert!((middle(json!({"min": 0.0, "max": 3.0})) - 1.5).abs() < 1e-12);
    }

    #[test]
    fn whole_values_and_choices_take_equal_shares_of_the_coordinates() {
        for range in [range(json!({"min": 32, "max": 128, "step": 32})), range(json!({"choices": ["a", 2, 3.5, true]}))]
        {
            let mut counts: BTreeMap<String, u32> = BTreeMap::new();
            for part in 0..1000 {
                *counts.entry(text(&range.value((f64::from(part) + 0.5) / 1000.0))).or_default() += 1;
            }
            assert_eq!(counts.values().copied().collect::<Vec<_>>(), [250; 4], "{counts:?}");
        }
    }

    #[test]
    fn a_value_is_found_again_at_its_coordinate_and_any_other_has_none() {
        let ranges = [
            range(json!({"min": 1e-4, "max": 1e-2, "log": true})),
            range(json!({"min": -2.0, "max": 3})),
            range(json!({"min": 32, "max": 512, "step": 32})),
            range(json!({"min": 1, "max": 1000, "log": true})),
            range(json!({"choices": ["puct", "gumbel", [1, 2]]})),
        ];
        for range in ranges {
            for part in 0..=20 {
                let value = range.value(f64::from(part) / 20.0);
                let found = range.value(range.coordinate(&value).unwrap());
                let is_same = match (value.as_f64(), found.as_f64()) {
                    (Some(value), Some(found)) => (value - found).abs() <= 1e-12 * value.abs(),
                    _ => value == found,
                };
                assert!(is_same, "{value} became {found} in {range:?}");
            }
            assert_eq!(range.coordinate(&json!("other")), None);
            assert_eq!(range.coordinate(&json!(1e6)), None);
        }
    }

    #[test]
    fn ends_are_exact_and_coordinates_beyond_are_those_of_the_ends() {
        let range = range(json!({"min": 0.0001, "max": 0.1, "log": true}));
        assert_eq!(range.ends(), [json!(0.0001), json!(0.1)]);
        assert_eq!((range.value(-3.0), range.value(7.0)), (json!(0.0001), json!(0.1)));
    }

    #[test]
    fn a_wrong_range_is_refused_with_the_part_that_is_wrong() {
        let cases = [
            (json!({"min": 1}), "settings.x: needs min and max, or choices"),
            (json!({"min": 1, "maximum": 2}), "settings.x: unknown field `maximum`, expected one of"),
            (json!({"min": 2, "max": 2}), "settings.x.max: is 2, must be above min (2)"),
            (json!({"min": "a", "max": 2.0}), "settings.x.min: is \"a\", must be a number"),
            (json!({"min": 0.0, "max": 2.0, "log": true}), "settings.x.min: is 0, must be above 0 if log is true"),
            (json!({"min": 0.5, "max": 2.0, "step": 1}), "settings.x.step: needs integers"),
            (json!({"min": 1, "max": 10, "step": 4}), "settings.x.step: is 4, must be a positive integer that divides"),
            (json!({"min": 1, "max": 10, "step": 0}), "settings.x.step: is 0, must be"),
            (json!({"min": i64::MIN, "max": i64::MAX}), "settings.x: contains more than 1000000000 values"),
            (json!({"min": -1e308, "max": 1e308}), "settings.x: is too wide"),
            (json!({"choices": [1]}), "settings.x.choices: needs at least two values"),
            (json!({"choices": [1, 2, 1]}), "settings.x.choices: contains a value twice"),
            (json!({"choices": [1, {"a": 2}]}), "settings.x.choices: must be numbers, strings"),
            (json!({"choices": [1, 2], "log": true}), "settings.x: has choices; remove min, max, step"),
        ];
        for (written, expected) in cases {
            let refusal = refusal(written);
            assert!(refusal.starts_with(expected), "{refusal} is not {expected}");
        }
    }

    #[test]
    fn values_are_short_in_tables_and_exact_on_the_command_line() {
        let shown = |value: Value| (short(&value), text(&value));
        let both = |short: &str, text: &str| (short.to_owned(), text.to_owned());
        assert_eq!(shown(json!(0.001_234_567)), both("0.001235", "0.001234567"));
        assert_eq!(shown(json!(1.25e-7)), both("1.25e-7", "1.25e-7"));
        assert_eq!(shown(json!(96)), both("96", "96"));
        assert_eq!(shown(json!("gumbel")), both("gumbel", "\"gumbel\""));
        assert_eq!(shown(json!([50, 200])), both("[50,200]", "[50,200]"));
    }
}
