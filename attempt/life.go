package attempt

// LifeShift is by how many bits the epoch of the cluster is shifted in the epoch
// of an attempt: its upper half says in which epoch of the cluster it was placed.
const LifeShift = 32

// LifeOf returns the epoch of the cluster in which an attempt with an epoch was
// placed.
func LifeOf(epoch uint64) uint64 { return epoch >> LifeShift }
