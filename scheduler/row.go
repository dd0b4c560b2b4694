package scheduler

// row remembers how well one shape fits on every node. It is a tournament: at
// each position of tree stands the better of the two below it, the first in
// node order when they are equal. The best node is read in one step; a node
// that changed costs one score and log2(nodes) comparisons.
type row struct {
	shape      shape
	scores     []int64 // By node.
	tree       []int32 // Winners; tree[1] is the best node, -1 stands for none.
	generation uint64  // Of the change log that cursor points into.
	cursor     int     // How much of the change log is included.
}

// rebuild scores all nodes.
func (r *row) rebuild(slots []slot) {
	size := 1
	for size < len(slots) {
		size *= 2
	}
	r.scores = make([]int64, len(slots))
	r.tree = make([]int32, 2*size)
	for i := range size {
		r.tree[size+i] = -1
		if i < len(slots) {
			r.scores[i] = slots[i].score(&r.shape)
			r.tree[size+i] = int32(i)
		}
	}
	for i := size - 1; i >= 1; i-- {
		r.tree[i] = r.better(r.tree[2*i], r.tree[2*i+1])
	}
}

// update scores node i again.
func (r *row) update(slots []slot, i int32) {
	score := slots[i].score(&r.shape)
	if score == r.scores[i] {
		return
	}
	r.scores[i] = score
	for at := (len(r.tree)/2 + int(i)) / 2; at >= 1; at /= 2 {
		r.tree[at] = r.better(r.tree[2*at], r.tree[2*at+1])
	}
}

// better returns which of two nodes has the lower score, left when equal.
func (r *row) better(left, right int32) int32 {
	if right < 0 || left >= 0 && r.scores[left] <= r.scores[right] {
		return left
	}
	return right
}

// runnerUp returns the best node beside the winner and its score: it lost to
// the winner itself, so it is on the winner's way to the top. It is -1 when
// no other node takes the shape now.
func (r *row) runnerUp(winner int) (node int, score int64) {
	second := int32(-1)
	for at := len(r.tree)/2 + winner; at > 1; at /= 2 {
		left, right := r.tree[at&^1], r.tree[at|1]
		beaten := right
		if at%2 == 1 {
			beaten = left
		}
		switch {
		case beaten < 0:
		case second < 0 || r.scores[beaten] < r.scores[second] ||
			r.scores[beaten] == r.scores[second] && beaten < second:
			second = beaten
		}
	}
	if second < 0 || r.scores[second] > worstFit {
		return -1, 0
	}
	return int(second), r.scores[second]
}

// best returns the best node and its score, which says why when no node fits.
func (r *row) best() (node int, score int64) {
	i := r.tree[1]
	if i < 0 {
		return -1, neverFits
	}
	return int(i), r.scores[i]
}
