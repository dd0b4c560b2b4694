// Package archive has the archives of executions that ended long ago: the record of each,
// the blob with their records, and the places that they keep in the history of their
// organization.
//
// It is not for choosing what is archived or for the tables of archives: package fsm does
// that, and merges archives with the state into one history.
//
// Rules: the same executions yield the same bytes, and a blob is accepted only with the sum of
// hashes that its record has. The layout of blobs never changes; another one gets another
// number. An archive that cannot be read is an error, never left out.
package archive
