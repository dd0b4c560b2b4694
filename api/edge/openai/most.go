package openai

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"berth/compute"
)

// Bounds of prompts. A tokenizer makes at most a token of a byte of text, and an engine takes no
// prompt that is longer than its context.
const (
	templateTokens = 256    // The most that a chat template adds to a conversation, apart from its messages.
	mediaTokens    = 32_768 // The most of a picture, a sound or a film.

	usualContext = 32_768 // The context of an engine whose arguments do not give one.
	lowerBy      = 8      // Once; then answers are as short as they are made.

	// Limits of answers whose prompts leave no room for more.
	fewTokens       = 128
	briefCompletion = 16
)

// Most returns how many tokens a request can need, for an engine with these arguments: its
// prompts at most, and the answers that it asks for, or usual ones if it does not limit them.
func (m *Body) Most(size int, path string, args []string) (prompt, completion int64) {
	completion = m.completions(path, cmp.Or(m.lowered, defaultCompletion))
	prompt = min(m.most, compute.MaxTokens)
	if limit := contextOf(args); limit > 0 {
		prompt = min(prompt, limit*min(max(m.prompts, m.inputs), compute.MaxTokens))
	}
	return prompt, completion
}

// Longest returns how many tokens the answers of a request have at most, also if it does not limit
// them, for an engine with these arguments.
func (m *Body) Longest(path string, args []string) int64 { return m.completions(path, m.open(args)) }

// open returns the most tokens of an answer without a limit of the request's own.
func (m *Body) open(args []string) int64 { return cmp.Or(m.lowered, contextOf(args), usualContext) }

// Lower has the answers of a request that does not limit them be shorter, by a limit that Addressed
// writes into the body. It reports false if the request has a limit, or no answers, or they are as
// short as they are made.
func (m *Body) Lower(path string, args []string) bool {
	most := m.open(args)
	if m.limit() > 0 || path == embeddings || most <= defaultCompletion {
		return false
	}
	if m.lowered == 0 {
		m.lowered = max(most/lowerBy, defaultCompletion)
	} else {
		m.lowered = defaultCompletion
	}
	return true
}

// Shorten lowers a limit that Lower has set, for an engine that has refused a request with it: the prompt
// may leave no room for such an answer. It reports false if there is no limit to lower.
func (m *Body) Shorten() bool {
	for _, next := range [...]int64{defaultCompletion, fewTokens, briefCompletion} {
		if m.lowered > next {
			m.lowered = next
			return true
		}
	}
	return false
}

// Brief reports whether an engine limits the answers of a request that does not: vLLM and SGLang continue a
// text by 16 tokens then, as OpenAI does. Null is no limit to them.
func (m *Body) Brief(path, engine string) bool {
	return path == "/completions" && !m.given && m.limit() == 0 && (engine == "vllm" || engine == "sglang")
}

// contextOf returns the longest context that the arguments of an engine allow, 0 if they do not
// say.
func contextOf(args []string) (most int64) {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		name = strings.ReplaceAll(name, "_", "-")
		if !slices.Contains([]string{"--max-model-len", "--ctx-size", "--context-length", "-c"}, name) {
			continue
		}
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n <= 0 {
			return 0
		}
		most = min(n, compute.MaxTokens) // The last one counts.
	}
	return most
}

// tokensOf returns how many tokens a prompt has at most: a text, a list of tokens, or a list of
// either. Lists in lists of lists count by their bytes.
func tokensOf(prompt []byte) int64 { return tokensWithin(prompt, 2) }

func tokensWithin(prompt []byte, lists int) int64 {
	if prompt[0] != '[' || lists == 0 {
		return int64(len(prompt))
	}
	tokens := int64(1)
	eachElement(prompt, func(from, to int) bool {
		if isNumber(prompt[from:to]) {
			tokens++
		} else {
			tokens += tokensWithin(prompt[from:to], lists-1)
		}
		return true
	})
	return tokens
}

// mediaOf returns how many more tokens than bytes messages have at most. It is negative where
// the bytes of a picture are more than its tokens.
func mediaOf(messages []byte) (more int64) {
	eachElement(messages, func(from, to int) bool {
		message := messages[from:to]
		eachField(message, func(key string, at, till int) bool {
			if content := message[at:till]; key == "content" {
				eachElement(content, func(from, to int) bool {
					more += mediaOfPart(content[from:to])
					return true
				})
			}
			return true
		})
		return true
	})
	return more
}

// mediaOfPart is mediaOf for a part of a message. One of a type that is not known counts as a
// picture besides its text.
func mediaOfPart(part []byte) (more int64) {
	medium, text := false, part[0] != '{'
	eachField(part, func(key string, from, to int) bool {
		switch {
		case key == "type":
			text = slices.Contains(textTypes(), string(part[from:to]))
		case key == "file": // It may be a text.
			medium = true
			more += max(mediaTokens-int64(to-from), 0)
		case slices.Contains(mediaKeys(), key):
			medium = true
			more += mediaTokens - int64(to-from)
		}
		return true
	})
	if !medium && !text {
		more += mediaTokens
	}
	return more
}

// textTypes returns the types of parts that are texts, in quotes.
func textTypes() []string {
	return []string{`"text"`, `"input_text"`, `"output_text"`, `"refusal"`, `"thinking"`}
}

// mediaKeys returns the fields of parts that have a picture, a sound or a film, or its address.
func mediaKeys() []string {
	return []string{
		"image_url", "image", "input_image", "image_embeds", "input_audio", "audio_url", "audio", "audio_embeds",
		"video_url", "video",
	}
}
