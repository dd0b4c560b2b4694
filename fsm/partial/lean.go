package partial

import "berth/fsm/store"

// AppendLean appends the encoding of an execution without its code: the bytes that
// hashOf hashes.
func AppendLean(dst, data []byte) []byte {
	f, _ := store.FieldsOf(data)
	for key, item, ok := f.Next(); ok && key <= bundleField; key, item, ok = f.Next() {
		if key != bundleField || !store.IsMap(item) {
			continue
		}
		inner, n := store.FieldsOf(item)
		lean := store.AppendHead(make([]byte, 0, leanRoom), store.MajorMap, n-1)
		for key, value, ok := inner.Next(); ok; key, value, ok = inner.Next() {
			if key == codeField {
				at := len(data) - len(f.Rest) - len(item)
				return append(append(append(dst, data[:at]...), lean...), f.Rest...)
			}
			lean = append(store.AppendHead(lean, store.MajorUint, key), value...)
		}
	}
	return append(dst, data...)
}
