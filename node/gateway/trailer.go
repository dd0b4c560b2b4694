package gateway

import (
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/s3err"
)

// trailers are the checksums that may follow a body.
var trailers = []string{ //nolint:gochecknoglobals // A table.
	"crc32", "crc32c", "crc64nvme", "sha1", "sha256", "sha512", "md5", "xxhash64", "xxhash3", "xxhash128",
}

// knownTrailer refuses a request that announces another trailer. The library answers that it has
// failed where it reads the body as a whole.
func knownTrailer(ctx fiber.Ctx) error {
	name := strings.ToLower(ctx.Get("X-Amz-Trailer"))
	if name == "" || slices.Contains(trailers, strings.TrimPrefix(name, "x-amz-checksum-")) {
		return ctx.Next()
	}
	err := s3err.GetAPIError(s3err.ErrTrailerHeaderNotSupported)
	ctx.Set(fiber.HeaderContentType, fiber.MIMEApplicationXML)
	return ctx.Status(err.HTTPStatusCode).Send(err.XMLBody("", ""))
}
