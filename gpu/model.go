package gpu

import (
	"strings"
	"unicode"
)

// UnknownType is the type of a device whose model name does not identify one.
const UnknownType = "unknown"

// TypeOf returns our name for the model that a driver reports: "h100" for
// "NVIDIA H100 80GB HBM3". A data-centre model is identified by its one word:
// its cooling, links and memory size do not make another type. For all other
// models the identifying words are joined with underscores. The result always
// matches [a-z0-9_]+ and is never "cpu".
func TypeOf(model string) string {
	var words []string
	for _, word := range strings.FieldsFunc(strings.ToLower(model), isSeparator) {
		if !isNoise(word) && !isMemorySize(word) {
			words = append(words, word)
		}
	}
	switch {
	case len(words) == 0, words[0] == "cpu":
		return UnknownType
	case isDataCentre(words[0]):
		return words[0]
	}
	return strings.Join(words, "_")
}

// typeName returns name if it can be one of our types, else UnknownType.
func typeName(name string) string {
	if name == "" || name == "cpu" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return UnknownType
	}
	return name
}

// isSeparator reports whether r separates the words of a model name. A letter
// or digit outside ASCII cannot be part of a type either.
func isSeparator(r rune) bool {
	return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// isNoise reports whether a word of a model name does not distinguish types.
func isNoise(word string) bool {
	switch word {
	case "nvidia", "tesla", "geforce", "quadro", "graphics", "device", "gpu",
		"generation", "edition", "with", "max", "q", "design", "mock", "simulated":
		return true
	}
	return false
}

// isMemorySize reports whether word is a memory size such as 80gb.
func isMemorySize(word string) bool {
	digits, found := strings.CutSuffix(word, "gb")
	return found && isDigits(digits)
}

// isDataCentre reports whether word is a data-centre model such as h100, l40s
// or gb200: one or two letters of a generation, digits, and at most one more
// letter.
func isDataCentre(word string) bool {
	rest := strings.TrimLeft(word, "abghlkmptv")
	if letters := len(word) - len(rest); letters < 1 || letters > 2 {
		return false
	}
	rest = strings.TrimRight(rest, "gsx")
	return isDigits(rest) && len(rest) <= 4
}

// isDigits reports whether s is one or more ASCII digits.
func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
