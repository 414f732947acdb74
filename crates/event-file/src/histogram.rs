use crate::messages::Histogram;

/// Number of buckets, all of equal width.
const BUCKETS: usize = 64;

/// Counts finite values in buckets between minimum and maximum; `None` without a finite value.
pub(crate) fn histogram(values: &[f32]) -> Option<Histogram> {
    let finite = || values.iter().copied().filter(|value| value.is_finite()).map(f64::from);
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    let (mut num, mut sum, mut sum_squares) = (0.0, 0.0, 0.0);
    for value in finite() {
        (min, max) = (min.min(value), max.max(value));
        num += 1.0;
        sum += value;
        sum_squares += value * value;
    }
    if num == 0.0 {
        return None;
    }
    let width = (max - min) / BUCKETS as f64;
    let (bucket_limit, bucket) = if width > 0.0 {
        let mut bucket = vec![0.0; BUCKETS];
        for value in finite() {
            // The cast truncates; the maximum belongs to the last bucket.
            bucket[(((value - min) / width) as usize).min(BUCKETS - 1)] += 1.0;
        }
        let limit = |index: usize| if index + 1 == BUCKETS { max } else { min + width * (index + 1) as f64 };
        ((0..BUCKETS).map(limit).collect(), bucket)
    } else {
        (vec![max], vec![num])
    };
    Some(Histogram { min, max, num, sum, sum_squares, bucket_limit, bucket })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_value_is_in_the_bucket_below_whose_limit_it_lies() {
        let values: Vec<f32> = (0..1000).map(|i| ((i * 37 % 1000) as f32 / 100.0 - 3.0).powi(3)).collect();
        let histogram = histogram(&values).unwrap();
        assert_eq!((histogram.bucket.len(), histogram.bucket.iter().sum::<f64>(), histogram.num), (64, 1000.0, 1000.0));
        assert!(histogram.bucket_limit.is_sorted() && histogram.bucket_limit[63] == histogram.max);
        let mut below = 0.0;
        for (limit, count) in histogram.bucket_limit.iter().zip(&histogram.bucket).take(63) {
            below += count;
            let expected = values.iter().filter(|value| f64::from(**value) < *limit).count() as f64;
            // Rounding may count a value at a limit on either side.
            assert!((below - expected).abs() <= 1.0, "{below} values instead of {expected} below {limit}");
        }
        let sum: f64 = values.iter().map(|&value| f64::from(value)).sum();
        let squares: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
        assert!((histogram.sum - sum).abs() < 1e-9 && (histogram.sum_squares - squares).abs() < 1e-9);
    }

    #[test]
    fn equal_values_have_one_bucket_and_values_that_are_not_finite_none() {
        let Histogram { bucket_limit, bucket, .. } = histogram(&[2.5, f32::NAN, 2.5, f32::INFINITY]).unwrap();
        assert_eq!((bucket_limit, bucket), (vec![2.5], vec![2.0]));
        assert_eq!((histogram(&[]), histogram(&[f32::NAN])), (None, None));
        // The bucket width for the whole range is finite.
        let whole = histogram(&[f32::MIN, f32::MAX]).unwrap();
        assert_eq!((whole.bucket[0], whole.bucket[63]), (1.0, 1.0));
    }
}
