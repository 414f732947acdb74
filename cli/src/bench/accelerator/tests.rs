use super::*;

fn accelerator(name: &str, busy_share: Option<f64>, mebibytes: u64) -> Accelerator {
    Accelerator { name: name.to_owned(), busy_share, memory_bytes: Some(mebibytes << 20) }
}

#[test]
fn every_line_is_an_accelerator() {
    let told = parse("NVIDIA H200, 37, 1024\nOne, of many, [N/A], 5\n\nno line\n");
    assert_eq!(told, [accelerator("NVIDIA H200", Some(0.37), 1024), accelerator("One, of many", None, 5)]);
}

#[test]
fn the_mean_is_of_every_reading_that_tells() {
    let readings = [Some(0.2), None, Some(0.6)].map(|busy| vec![accelerator("A", busy, 7)]);
    assert_eq!(mean(&readings), [accelerator("A", Some(0.4), 7)]);
    assert_eq!(mean(&[vec![accelerator("A", None, 7)]]), [accelerator("A", None, 7)]);
    assert_eq!(mean(&[]), []);
}
