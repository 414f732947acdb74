use weights::Architecture;

use super::*;

fn manifest(version: u64, bytes: &[u8]) -> Manifest {
    let architecture = Architecture {
        game: "any".into(),
        planes: 2,
        height: 3,
        width: 3,
        actions: 9,
        channels: 8,
        blocks: 1,
        squeeze_excitation: 0,
        global_pooling: 0,
    };
    Manifest {
        version: WeightsVersion(version),
        training_step: version * 10,
        digest: Digest::of(bytes),
        size_bytes: bytes.len() as u64,
        architecture,
    }
}

fn published(versions: &[u64]) -> (tempfile::TempDir, Published) {
    let directory = tempfile::tempdir().unwrap();
    let published = Published::new(directory.path().join("weights"), 2);
    for &version in versions {
        let bytes = version.to_le_bytes();
        published.write(&manifest(version, &bytes), &bytes).unwrap();
    }
    (directory, published)
}

#[test]
fn the_first_version_of_a_run_is_one() {
    assert_eq!(published(&[]).1.next_version().unwrap(), WeightsVersion(1));
}

#[test]
fn the_newest_version_comes_back_and_the_next_number_is_new() {
    let (_directory, published) = published(&[1, 2, 11]);
    let (newest, bytes) = published.newest().unwrap().unwrap();
    assert_eq!((newest.version, bytes), (WeightsVersion(11), 11u64.to_le_bytes().to_vec()));
    assert_eq!(published.next_version().unwrap(), WeightsVersion(12));
    assert_eq!(published.versions().unwrap(), [WeightsVersion(2), WeightsVersion(11)]);
}

#[test]
fn a_damaged_version_is_passed_over_and_its_number_is_not_given_again() {
    let (_directory, published) = published(&[1, 2]);
    fs::write(published.weights_path(WeightsVersion(2)), b"other bytes").unwrap();
    assert_eq!(published.newest().unwrap().unwrap().0.version, WeightsVersion(1));
    assert_eq!(published.next_version().unwrap(), WeightsVersion(3));
}
