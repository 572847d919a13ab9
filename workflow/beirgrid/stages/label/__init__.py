"""Score training pairs with a teacher."""
