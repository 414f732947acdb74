use super::*;

#[test]
fn the_faster_path_comes_first_and_of_two_alike_the_wider() {
    use Path::{Avx2F32, Avx512Bf16, Avx512F32, PortableF32};
    let order =
        |speeds: [f64; 4]| order([Avx512Bf16, Avx512F32, Avx2F32, PortableF32].into_iter().zip(speeds).collect());
    assert_eq!(order([160.0, 80.0, 40.0, 3.0]), [Avx512Bf16, Avx512F32, Avx2F32, PortableF32]);
    assert_eq!(order([40.0, 90.0, 48.0, 3.0]), [Avx512F32, Avx512Bf16, Avx2F32, PortableF32]);
    assert_eq!(order([40.0, 90.0, 49.0, 3.0]), [Avx512F32, Avx2F32, Avx512Bf16, PortableF32]);
    assert_eq!(order([80.0, 90.0, 48.0, 3.0]), [Avx512Bf16, Avx512F32, Avx2F32, PortableF32]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "paths are measured with a real clock")]
fn every_path_of_this_machine_is_measured_and_listed() {
    let mut ticks = 0;
    let mut now = || {
        ticks += 1;
        Instant::now()
    };
    let paths = fastest_first(&mut now);
    let mut available: Vec<Path> = Path::ALL.into_iter().filter(|path| path.is_available()).collect();
    assert!(ticks >= 2 * available.len());
    available.sort_by_key(|path| path.name());
    let mut sorted = paths;
    sorted.sort_by_key(|path| path.name());
    assert_eq!(sorted, available);
}
