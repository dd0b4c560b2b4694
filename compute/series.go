package compute

import (
	"encoding/binary"
	"iter"
)

// maxSeries is of how many attempts, the newest, an execution keeps the metrics.
const maxSeries = 16

// seriesBytes is the size of a reference in Execution.Series: an epoch, a hash.
const seriesBytes = 8 + len(Hash{})

// AddSeries records the blob with the metrics of an attempt. Attempts end in the order
// of their epochs. The slice before is not changed.
func (e *Execution) AddSeries(epoch uint64, blob Hash) {
	old := e.Series[max(0, len(e.Series)-(maxSeries-1)*seriesBytes):]
	added := append(make([]byte, 0, len(old)+seriesBytes), old...)
	e.Series = append(binary.BigEndian.AppendUint64(added, epoch), blob[:]...)
}

// SeriesOf returns the blob with the metrics of an attempt.
func (e *Execution) SeriesOf(epoch uint64) (Hash, bool) {
	for at, blob := range SeriesIn(e.Series) {
		if at == epoch {
			return blob, true
		}
	}
	return Hash{}, false
}

// SeriesIn yields the epochs and blobs of Execution.Series.
func SeriesIn(refs []byte) iter.Seq2[uint64, Hash] {
	return func(yield func(uint64, Hash) bool) {
		for ; len(refs) >= seriesBytes; refs = refs[seriesBytes:] {
			if !yield(binary.BigEndian.Uint64(refs), Hash(refs[8:seriesBytes])) {
				return
			}
		}
	}
}
