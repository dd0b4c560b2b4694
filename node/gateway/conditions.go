package gateway

import (
	"context"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/s3err"
)

// Values of a request's context: conditions as the client sent them. The library gives
// a backend neither those of what a copy writes, nor an If-Match of no ETag.
const (
	sentMatch     = "berth-if-match"
	sentNoneMatch = "berth-if-none-match"
)

// sentConditions keeps the conditions of a request.
func sentConditions(ctx fiber.Ctx) error {
	if match := ctx.Get("If-Match"); match != "" {
		ctx.Locals(sentMatch, match)
	}
	if none := ctx.Get("If-None-Match"); none != "" {
		ctx.Locals(sentNoneMatch, none)
	}
	return ctx.Next()
}

// sent returns one of the kept conditions, nil for none.
func sent(ctx context.Context, name string) *string {
	value, ok := ctx.Value(name).(string)
	if !ok {
		return nil
	}
	return &value
}

// checkSent refuses a request whose If-Match no object can satisfy.
func checkSent(ctx context.Context) error {
	if match := sent(ctx, sentMatch); match != nil && unquoted(match) == "" {
		return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatch)
	}
	return nil
}
