//! Komi in the forms in which records write it: [`points`].

/// Maximum number of bytes in a value.
const BYTES_MAX: usize = 60;
/// Maximum komi in points: the number of cells on a board of 19x19.
const POINTS_MAX: f32 = 361.0;
/// Minimum integer that is a number of hundredths, as the server Fox writes it: `375` for 3.75 stones.
pub(super) const HUNDREDTHS_MIN: f32 = 100.0;
/// Maximum number of stones without a unit: points have no quarters.
const UNNAMED_STONES_MAX: f32 = 5.0;
/// Words that are not a number, longer ones first.
const WORDS: &str = "stones zi points point pts moku komi コミ 出し 子 目 点 點 집 덤 黑 黒 贴 貼 又 と : =";
/// Chinese digits from zero.
const DIGITS: &str = "〇一二三四五六七八九";
const FRACTIONS: [(&str, &str); 5] =
    [(",", "."), ("¼", " 1/4"), ("¾", " 3/4"), ("四分之一", " 1/4"), ("四分之三", " 3/4")];
const HALVES: &str = "半 반 half ½";

/// Returns the points, whole or half, of a value: `6.5`, `6,5`, `6.5目`, `六目半`, and in stones `3.75`, `3又3/4子`
/// or `375`. Returns `None` if the value is unclear.
pub(super) fn points(value: &str) -> Option<f32> {
    (value.len() <= BYTES_MAX).then_some(())?;
    let mut text = value.to_lowercase();
    // Units of Chinese scoring; each is two points.
    let names_stones = ["子", "stones", "zi"].iter().any(|unit| text.contains(*unit));
    text = FRACTIONS.iter().fold(text, |text, (written, read)| text.replace(*written, read));
    text = DIGITS.chars().zip('0'..='9').fold(text, |text, (digit, read)| text.replace(digit, &read.to_string()));
    text = HALVES.split(' ').fold(text, |text, half| text.replace(half, " 1/2"));
    text = WORDS.split(' ').fold(text, |text, word| text.replace(word, " "));
    let number = match *text.split_whitespace().collect::<Vec<_>>() {
        [number] => number.parse().ok().or_else(|| fraction(number))?,
        [whole, part] => f32::from(whole.parse::<u8>().ok()?) + fraction(part)?,
        _ => return None,
    };
    let is_half_points = |points: f32| (2.0 * points).fract() == 0.0;
    let is_hundredths = !text.contains('.') && number.abs() >= HUNDREDTHS_MIN;
    let number = if is_hundredths { number / 100.0 } else { number };
    let is_stones = names_stones || (!is_half_points(number) && number.abs() < UNNAMED_STONES_MAX);
    let points = if is_stones { 2.0 * number } else { number };
    (is_half_points(points) && points.abs() <= POINTS_MAX).then_some(points)
}

/// Parses `3/4`.
fn fraction(text: &str) -> Option<f32> {
    let (parts, of) = text.split_once('/')?;
    let (parts, of): (u8, u8) = (parts.parse().ok()?, of.parse().ok()?);
    (of > 0).then(|| f32::from(parts) / f32::from(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn komi_is_read_in_every_form_that_records_have() {
        let cases = [
            ("6.5", 6.5),
            ("6,5", 6.5),
            (" +7 ", 7.0),
            ("-5.5", -5.5),
            ("0", 0.0),
            (".5", 0.5),
            ("7.50", 7.5),
            ("6.5目", 6.5),
            ("6.5 points", 6.5),
            ("6½", 6.5),
            ("6 1/2", 6.5),
            ("6目半", 6.5),
            ("半目", 0.5),
            ("六目半", 6.5),
            ("七目半", 7.5),
            ("黑贴三又四分之三子", 7.5),
            ("三又3/4子", 7.5),
            ("コミ6目半", 6.5),
            ("6집반", 6.5),
            ("Komi: 7.5", 7.5),
            ("150.0", 150.0),
            ("3.75", 7.5),
            ("3.25", 6.5),
            ("3.75子", 7.5),
            ("3又3/4子", 7.5),
            ("黑贴3 3/4子", 7.5),
            ("2.75 zi", 5.5),
            ("375", 7.5),
            ("325", 6.5),
            ("750", 7.5),
            ("650", 6.5),
            ("-375", -7.5),
        ];
        for (value, komi) in cases {
            assert_eq!(points(value), Some(komi), "{value}");
        }
    }

    #[test]
    fn unclear_komi_is_none() {
        for value in
            ["", "?", "NaN", "inf", "十目半", "0.3", "7.25", "6.5-7.5", "6 7", "-6 1/2", "B+6.5", "no", "1/0", "500.5"]
        {
            assert_eq!(points(value), None, "{value}");
        }
        assert_eq!(points(&format!("6.5{}", " ".repeat(80))), None);
    }
}
