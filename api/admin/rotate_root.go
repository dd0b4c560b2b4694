package admin

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/fsm/command"
)

// rootTokenMark is how root tokens begin, and rootTokenBytes how much of one is random.
const (
	rootTokenMark  = "brt_"
	rootTokenBytes = 32
)

// rotateRootToken replaces the root token. Its text is in this answer and nowhere else.
func (g *rotations) rotateRootToken(r *edge.Request) (any, error) {
	secret := make([]byte, rootTokenBytes)
	if _, err := io.ReadFull(g.Config.Rand, secret); err != nil {
		return nil, fmt.Errorf("make root token: %w", err)
	}
	token := rootTokenMark + base64.RawURLEncoding.EncodeToString(secret)
	rotate := command.RotateRootToken{
		Op: g.Op(r), Actor: r.Caller.Actor, Token: sha256.Sum256([]byte(token)), Before: r.View.RootToken(),
	}
	if err := r.View.Allows(rotate); err != nil {
		return nil, err
	}
	result, err := g.ProposeAndSee(r, rotate)
	if err != nil {
		return nil, err
	}
	if result.Repeat && r.View.RootToken() != rotate.Token {
		return nil, handler.ErrSecretGone("root token", "")
	}
	return wire.RotatedRootToken{RootToken: token}, nil
}
