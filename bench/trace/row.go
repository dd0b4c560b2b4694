package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row is one line of a file, with its first error.
type row struct {
	path    string
	reader  *csv.Reader
	columns map[string]int
	fields  []string
	err     error
}

// rows passes each line after the header to use and stops at the first error.
func rows(from io.Reader, path string, needed []string, use func(*row)) error {
	reader := csv.NewReader(from)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: empty; the first line names the columns %s", path, strings.Join(needed, ","))
	}
	if err != nil {
		return place(path, err)
	}
	r := &row{path: path, reader: reader, columns: map[string]int{}}
	for i, name := range header {
		r.columns[strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))] = i
	}
	for _, name := range needed {
		if _, ok := r.columns[name]; !ok {
			there := strings.Join(slices.Sorted(maps.Keys(r.columns)), ",")
			return fmt.Errorf("%s:1: no column %s; it needs %s and has %s",
				path, name, strings.Join(needed, ","), there)
		}
	}
	count := 0
	for {
		r.fields, err = reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return place(path, err)
		}
		use(r)
		if r.err != nil {
			return r.err
		}
		count++
	}
	if count == 0 {
		return fmt.Errorf("%s: no rows behind the header", path)
	}
	return nil
}

// place adds the file's path to an error of the CSV reader.
func place(path string, err error) error {
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("%s:%d:%d: %w", path, parse.Line, parse.Column, parse.Err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// text returns the value of a column without surrounding spaces, "" for a
// missing column.
func (r *row) text(column string) string {
	if i, ok := r.columns[column]; ok {
		return strings.TrimSpace(r.fields[i])
	}
	return ""
}

// line returns the line number of the column's value.
func (r *row) line(column string) int {
	line, _ := r.reader.FieldPos(r.columns[column])
	return line
}

// refuse records that a column is invalid, unless an error is already recorded.
func (r *row) refuse(column, format string, args ...any) {
	if r.err != nil {
		return
	}
	line, at := 1, 1
	if i, ok := r.columns[column]; ok {
		line, at = r.reader.FieldPos(i)
	}
	r.err = fmt.Errorf("%s:%d:%d: column %s: %s", r.path, line, at, column, fmt.Sprintf(format, args...))
}

// number returns the integer in a column.
func (r *row) number(column string, least, most int64) int64 {
	value := r.text(column)
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > most {
		r.refuse(column, "%q is not a whole number from %d to %d", value, least, most)
		return 0
	}
	return n
}

// optional returns the integer in a column that may be missing or empty.
func (r *row) optional(column string, least, most int64) int64 {
	if r.text(column) == "" {
		return 0
	}
	return r.number(column, least, most)
}

// seconds returns the time in a column that may be missing or empty.
func (r *row) seconds(column string) time.Duration {
	value := r.text(column)
	if value == "" {
		return 0
	}
	s, err := strconv.ParseFloat(value, 64)
	if err != nil || !(s >= 0 && s <= 1e9) {
		r.refuse(column, "%q is not a time in seconds", value)
		return 0
	}
	return time.Duration(s * float64(time.Second))
}
