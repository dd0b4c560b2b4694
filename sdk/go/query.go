package berth

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// queryOf returns the fields of a struct that are not zero as the parameters of a URL.
func queryOf(from any) url.Values {
	out := url.Values{}
	value := reflect.ValueOf(from)
	for i := range value.NumField() {
		field := value.Field(i)
		if field.IsZero() {
			continue
		}
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		if at, ok := field.Interface().(time.Time); ok {
			out.Set(name, at.UTC().Format(time.RFC3339Nano))
			continue
		}
		out.Set(name, fmt.Sprint(field.Interface()))
	}
	return out
}

// waitOf returns how long a node may hold an answer that was asked for with such a wait:
// a duration as in 30s, or a number of seconds.
func waitOf(text string) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0 // The node says what is wrong with it.
	}
	return d
}
